# SPDX-License-Identifier: Apache-2.0
"""The text the small model learns: short stories with a cause and an effect, and conversations in
the chat format, from a grammar and a seed. All of it is written here, so it may be passed on under
the project's licence. ASCII only."""

ANIMALS = ("fox rabbit bear mouse owl frog turtle squirrel hedgehog cat dog duck pig goat horse "
           "sheep hen badger otter deer").split()
NAMES = {"she": "Mia Lily Anna Rosa Nora Ella Ruby Daisy Emma Lucy Molly Sara".split(),
         "he": "Tom Ben Max Leo Sam Oscar Finn Jack Toby Henry Paul Felix".split()}
TRAITS = "little small young kind clever brave shy happy curious gentle quiet friendly".split()
PLACES = ("the forest", "the river", "the old bridge", "the hill", "the garden", "the beach",
          "the lake", "the village", "the meadow", "the big oak tree", "the barn", "the market")
HOMES = ("in a small house near the forest", "in a warm den under a tree",
         "in a little house by the lake", "on a farm near the village",
         "in a hollow tree on the hill", "in a cozy cottage by the river")
THINGS = ("ball kite hat book bell drum boat lamp key basket scarf ring cup coin whistle").split()
COLORS = "red blue green yellow white black brown orange purple".split()
FOODS = ("apple", "cake", "loaf of bread", "bowl of soup", "pear", "cookie", "basket of berries",
         "piece of cheese", "jar of honey", "carrot")
HOBBIES = ("sing", "run in the grass", "swim in the lake", "climb trees", "paint pictures",
           "read books", "look at the stars", "pick flowers", "play hide and seek", "bake bread")
SEEDS = "sunflower pumpkin bean tomato strawberry carrot".split()
TIMES = ("One morning", "One day", "One evening", "One sunny day", "One cold morning",
         "One windy day", "One quiet afternoon")
LESSONS = {"lost": "It is never wrong to ask for help", "storm": "Being kind is always right",
           "rescue": "Even small friends can do big things",
           "share": "Sharing makes everyone happy", "build": "If you try again, you can do it",
           "night": "Most things are not so bad in the light",
           "race": "A good friend is better than a prize", "garden": "Good things take time",
           "honest": "It is brave to tell the truth", "lonely": "A friend can be anywhere"}


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


class Hero:
    def __init__(self, rng, taken=(), kind=None):
        self.he = rng.choice(("he", "she"))
        self.name = rng.choice([n for n in NAMES[self.he] if n not in taken])
        self.kind = kind or rng.choice([a for a in ANIMALS if a not in taken])
        self.trait = rng.choice(TRAITS)
        self.He = self.he.capitalize()
        self.his, self.him = ("his", "him") if self.he == "he" else ("her", "her")


class Scene:
    """What one story is about; drawn before any of it is told."""

    def __init__(self, rng, kind=None, thing=None, plot=None):
        self.rng = rng
        self.a = Hero(rng, kind=kind)
        self.b = Hero(rng, taken=(self.a.name, self.a.kind))
        self.place, self.far = rng.sample(PLACES, 2)
        self.thing, self.other = rng.sample(THINGS, 2)
        self.thing = thing or self.thing
        self.color = rng.choice(COLORS)
        self.food = rng.choice(FOODS)
        self.seed = rng.choice(SEEDS)
        self.plot = plot or rng.choice(sorted(PLOTS))

    def say(self, *choices):
        return self.rng.choice(choices).format(
            A=self.a.name, B=self.b.name, a=self.a.kind, b=self.b.kind, He=self.a.He,
            he=self.a.he, his=self.a.his, him=self.a.him, bHe=self.b.He, bhe=self.b.he,
            bhis=self.b.his, bhim=self.b.him, atrait=self.a.trait, btrait=self.b.trait,
            aa=article(self.a.trait + " " + self.a.kind), bb=article(self.b.trait + " "
            + self.b.kind), place=self.place, far=self.far, thing=self.thing, color=self.color,
            other=self.other, cthing=article(self.color + " " + self.thing), food=self.food,
            seed=self.seed, afood=article(self.food), time=self.rng.choice(TIMES),
            lesson=LESSONS[self.plot])


def opening(s):
    home, hobby = s.rng.choice(HOMES), s.rng.choice(HOBBIES)
    housed = s.rng.random() < 0.3
    if housed:
        yield s.say("Once upon a time, {aa} named {A} lived " + home + ".",
                    "{A} the {a} lived " + home + ".")
    else:
        yield s.say("Once upon a time, there was {aa} named {A}.", "{A} was {aa}.",
                    "There once was {aa} named {A}.",
                    "Once there was {aa}, and {his} name was {A}.")
    if s.rng.random() < 0.6:
        yield s.rng.choice((f"{s.a.He} loved to {hobby}.",
                            f"Every day, {s.a.name} liked to {hobby}.",
                            f"{s.a.name} liked to {hobby}." if housed else
                            f"{s.a.name} lived {home}."))


def meeting(s):
    yield s.say("On the way, {he} met {B} the {b}.", "There {he} saw {bb} named {B}.",
                "Soon {B} the {b} came by.", "Then {A} met {bb} named {B}.")


def greeting(s):
    yield s.say('"Hello," said {B}. "What is wrong?"', '"Why are you so sad?" asked {B}.',
                '"Can I help you?" asked {B}.', '"What happened?" asked {B} the {b}.')


def ending(s):
    yield s.say("From that day on, {A} and {B} were best friends.",
                "{A} and {B} were very happy.", "That night, {A} slept well and was happy.",
                "And so {A} learned something. {lesson}.", "{A} smiled all the way home.",
                "After that, {A} and {B} played together every day.",
                '"{lesson}," said {B}, and {A} agreed.')


def lost(s):
    yield s.say("{time}, {A} lost {his} {color} {thing} near {place}.",
                "{A} had {cthing}. {time}, {he} could not find it.")
    yield s.say("{He} looked under the bed and behind the door, but it was not there.",
                "{He} looked everywhere, but the {thing} was gone.",
                "{A} was sad and began to cry.")
    yield from meeting(s)
    yield from greeting(s)
    yield s.say('"I lost my {thing}," said {A}.', '"My {color} {thing} is gone," said {A}.')
    yield s.say('"Do not worry," said {B}. "We will find it together."',
                '"I will help you look for it," said {B}.')
    yield s.say("They walked to {far} and looked in the grass.", "So they went to {far}.",
                "They looked near {far} for a long time.")
    yield s.say("There, under a leaf, was the {color} {thing}!",
                "At last, {B} found the {thing} behind a stone.",
                "Then {A} saw something {color}. It was the {thing}!")
    yield s.say('"Thank you, {B}!" said {A}.', "{A} was so happy that {he} gave {B} a hug.")


def storm(s):
    yield s.say("{time}, {A} walked to {place}.", "{time}, {A} went to {place} to play.")
    yield s.say("Suddenly, dark clouds came and it began to rain.",
                "Then the wind blew hard and the rain fell down.")
    yield s.say("{A} got wet because {he} had no place to hide.", "{A} was cold and afraid.",
                "{A} ran fast, but {he} was soon wet and cold.")
    yield from meeting(s)
    yield s.say('"Come into my house," said {B}. "It is warm and dry."',
                '"You can stay with me until the rain stops," said {B}.')
    yield s.say("They sat by the fire and ate {afood}.", "{B} made hot tea for {A}.",
                "{B} gave {A} a dry blanket and {afood}.")
    yield s.say("When the rain stopped, there was a rainbow over {far}.",
                "Soon the sun came out again, and they saw a rainbow.")
    yield s.say('"Thank you for being so kind," said {A}.', "{A} thanked {B} and went home.")


def rescue(s):
    yield s.say("{time}, {A} heard a cry near {place}.", "{time}, {A} was walking near {place}.")
    yield s.say("It was {bb} named {B}. {bHe} had fallen into a hole.",
                "There {he} saw {bb} named {B}, who was stuck in the mud.")
    yield s.say('"Please help me!" cried {B}. "I can not get out."', '"Help! Help!" cried {B}.')
    yield s.say("{A} was small, but {he} had an idea.", "{A} thought for a moment.",
                '"Do not be afraid," said {A}. "I will help you."')
    yield s.say("{He} found a long branch and held it out.", "{He} ran to get a strong rope.",
                "{He} took a long stick and pulled as hard as {he} could.")
    yield s.say("{B} held on tight, and {A} pulled {bhim} out.", "{B} climbed out and was safe.")
    yield s.say('"You saved me!" said {B}. "Thank you, {A}."',
                "{B} was so thankful that {bhe} gave {A} {cthing}.")


def share(s):
    yield s.say("{time}, {A} had {afood} for lunch.", "{time}, {A} found {afood} near {place}.")
    yield s.say("{He} wanted to eat it alone.", "{He} was very hungry.", "It smelled very good.")
    yield from meeting(s)
    yield s.say('"I am so hungry," said {B}. "I have had no food today."',
                "{B} looked hungry and sad because {bhe} had nothing to eat.")
    yield s.say("{A} thought about it. Then {he} gave half of the food to {B}.",
                '"You can have half of mine," said {A}.', '"Let us share," said {A}.')
    yield s.say("They sat near {far} and ate together.", "They ate together and talked all day.")
    yield s.say("The next day, {B} brought {A} a {color} flower.",
                "The next day, {B} came back with {cthing} for {A}.",
                '"That was the best lunch ever," said {B}.')


def build(s):
    yield s.say("{A} wanted to make {cthing}.", "{time}, {A} began to make {cthing}.")
    yield s.say("{He} worked all morning, but the {thing} broke.",
                "{He} tried once, but it fell apart.", "It was hard, and the {thing} broke in two.")
    yield s.say('"I can not do it," said {A}.', "{A} was sad and wanted to stop.",
                "{A} sat down near {place} and cried.")
    yield from meeting(s)
    yield s.say('"Try again," said {B}. "I will hold it for you."',
                '"Let us do it together," said {B}.', '"Do not give up," said {B}.')
    yield s.say("So they tried again, slowly and with care.",
                "{A} took a deep breath and tried again.")
    yield s.say("This time it worked! The {color} {thing} was beautiful.",
                "Now the {thing} was strong, and {A} was proud.")
    yield s.say("They took the {thing} to {far} and played until the sun went down.",
                "{A} showed the {thing} to everyone in the village.")


def night(s):
    yield s.say("{A} was afraid of the dark.", "At night, {A} could not sleep.")
    yield s.say("{He} heard a strange sound near {place}.",
                "When the sun went down, {he} heard a loud noise.")
    yield s.say('"Is it a monster?" thought {A}.', "{A} hid under the blanket.")
    yield s.say("Then someone knocked on the door. It was {B} the {b}.",
                "Then {he} saw a light. It was {bb} named {B}, with a lamp.")
    yield s.say('"I heard a sound," said {A}. "I am afraid."', '"What is that noise?" asked {A}.')
    yield s.say('"It is only the wind," said {B}.', '"It is only an old owl," said {B}.',
                '"It is only the rain on the roof," said {B}.')
    yield s.say("They looked outside and saw the moon and the stars.",
                "{B} stayed and told a funny story.")
    yield s.say("After that, {A} was not afraid of the dark any more.",
                "Soon {A} was asleep and had a sweet dream.")


def race(s):
    yield s.say("{A} and {B} the {b} wanted to see who was faster.",
                'One day, {B} the {b} said, "Let us have a race to {far}!"')
    yield s.say("All the animals came to {place} to watch.", "They began to run near {place}.")
    yield s.say("{B} ran very fast and was far ahead.", "At first, {B} was faster than {A}.")
    yield s.say("But then {B} fell over a stone and hurt {bhis} leg.",
                "Then {B} slipped and fell down with a cry.")
    yield s.say("{A} could win now, but {he} stopped.", "{A} did not run on. {He} went back.")
    yield s.say('"Are you hurt?" asked {A}. "Take my hand."', '"Let me help you up," said {A}.')
    yield s.say("They walked to the end together, side by side.",
                "So they came to {far} at the same time.")
    yield s.say("Everyone cheered, and both of them got a prize.",
                '"You both win!" said the old owl.')


def garden(s):
    yield s.say("{time}, {A} planted a {seed} seed in the garden.",
                "In spring, {A} put a {seed} seed into the ground.")
    yield s.say("{He} gave it water every day.", "Every morning, {he} looked at the ground.")
    yield s.say("But nothing came up, and {A} was sad.", "Days went by, but nothing grew.")
    yield from meeting(s)
    yield s.say('"My seed does not grow," said {A}.', '"Maybe it is a bad seed," said {A}.')
    yield s.say('"You have to wait," said {B}. "Plants need time and sun."',
                '"Give it some time," said {B}. "It will grow."')
    yield s.say("So {A} waited and watered it again.", "{A} waited, and the sun was warm.")
    yield s.say("One day, a small green plant came out of the ground!",
                "After some days, there was a big {seed} plant in the garden!")
    yield s.say("In summer, they sat in the garden and were happy together.",
                "{A} and {B} danced around it with joy.")


def honest(s):
    yield s.say("{time}, {A} found {cthing} near {place}.", "{A} saw {cthing} on the ground.")
    yield s.say("It was so beautiful that {he} wanted to keep it.", "{A} took it home.")
    yield s.say("Then {he} saw {B} the {b}, who was looking for something.",
                "The next day, {he} met {bb} named {B}, who was crying.")
    yield s.say('"I lost my {thing} near {place}," said {B}.',
                '"Have you seen my {color} {thing}?" asked {B}.')
    yield s.say("{A} wanted to say no, but {he} knew that was wrong.",
                "{A} thought about it for a moment.")
    yield s.say('"I found it. Here it is," said {A}.', '"Yes, I have it. It is yours," said {A}.')
    yield s.say("{B} jumped with joy and thanked {A}.",
                '"Thank you for telling the truth," said {B}.')
    yield s.say("{B} gave {A} {afood}.", "Then they went to {far} and played together.")


def lonely(s):
    yield s.say("{A} was new in the village and had no friends.",
                "{A} was lonely and had no one to play with.")
    yield s.say("{time}, {he} went to {place} with {his} {color} {thing}.",
                "{time}, {he} sat alone near {place}.")
    yield s.say("There {he} saw {bb} named {B}, who was alone too.",
                "{B} the {b} was sitting there all alone.")
    yield s.say("{A} was shy, but {he} said hello.", '"Hello, my name is {A}," said {A}.')
    yield s.say('"Do you want to play with me?" asked {B}.',
                '"I am {B}. I like your {thing}," said {B}.')
    yield s.say('"Yes, I do!" said {A}.', "{A} smiled and said yes.")
    yield s.say("They played with the {thing} until it was dark.",
                "They ran to {far} and laughed all day.")


PLOTS = {"lost": lost, "storm": storm, "rescue": rescue, "share": share, "build": build,
         "night": night, "race": race, "garden": garden, "honest": honest, "lonely": lonely}
PLANS = {"lost": "{A} loses {cthing} and {B} helps to find it",
         "storm": "{A} gets wet in the rain and {B} helps",
         "rescue": "{A} saves {B}", "share": "{A} shares {afood} with {B}",
         "build": "{A} makes {cthing} and tries again when it breaks",
         "night": "{A} is afraid of the dark and {B} helps", "race": "{A} and {B} run a race",
         "garden": "{A} plants a {seed} seed", "honest": "{A} finds {cthing} and tells the truth",
         "lonely": "{A} is lonely and finds a friend"}


def tell(scene, short=False):
    """The sentences of a scene as one text."""
    first = list(opening(scene))
    rest = list(PLOTS[scene.plot](scene)) + list(ending(scene))
    return " ".join(first[:1 if short else 2] + rest)


def story(rng):
    return tell(Scene(rng))


def drill(rng):
    """Two who keep meeting: little happens, but nearly every sentence says who it was."""
    s = Scene(rng)
    parts = [s.say("{A} the {a} saw {B} the {b}.", "{A} the {a} and {B} the {b} had {cthing}.")]
    for _ in range(rng.randint(5, 8)):
        parts.append(s.say(
            '"Hello, {A}," said {B}.', '"Hello, {B}," said {A}.', '"Thank you, {A}," said {B}.',
            '"Thank you, {B}," said {A}.', "{A} gave {B} the {thing}.", "{B} gave {A} the {thing}.",
            "{A} and {B} looked at the {color} {thing}.", "{B} and {A} played with the {thing}.",
            "{A} the {a} was happy.", "{B} the {b} was happy.", '"I am {A} the {a}," said {A}.',
            '"I am {B} the {b}," said {B}.', "The {a} and the {b} had the {color} {thing}."))
    return " ".join(parts)
