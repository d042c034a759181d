# SPDX-License-Identifier: Apache-2.0
"""Conversations the small model learns, in the chat format of Kimi K3: lists of text fragments and
of control tokens, by name. As in stories.py, all of it is written here."""
import stories

OPEN, CLOSE, SEP, EOM, EOS = "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[EOS]"

EFFORT = ("`thinking_effort` guides on how much to think in your thinking channel (not including "
          "the response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
          "Now the system is invoked with `thinking_effort={}`.")

SOUNDS = {"cow": "moo", "dog": "woof", "cat": "meow", "duck": "quack", "sheep": "baa",
          "pig": "oink", "lion": "roar", "owl": "hoot", "frog": "croak", "horse": "neigh"}
COLORS = {"the sky": "blue", "grass": "green", "snow": "white", "the sun": "yellow",
          "a banana": "yellow", "blood": "red", "coal": "black", "a carrot": "orange",
          "a frog": "green", "milk": "white", "a strawberry": "red", "the sea": "blue"}
OPPOSITES = (("hot", "cold"), ("big", "small"), ("day", "night"), ("up", "down"), ("fast", "slow"),
             ("happy", "sad"), ("wet", "dry"), ("old", "young"), ("open", "closed"),
             ("light", "dark"), ("hard", "soft"), ("full", "empty"), ("left", "right"))
LEGS = {"dog": 4, "cat": 4, "horse": 4, "cow": 4, "bird": 2, "duck": 2, "spider": 8, "ant": 6,
        "bee": 6, "snake": 0, "fish": 0}
LIVES = {"fish": "in the water", "bird": "in a nest", "bee": "in a hive", "fox": "in a den",
         "horse": "in a stable", "frog": "near a pond", "bear": "in the forest",
         "cow": "on a farm", "rabbit": "in a hole in the ground", "squirrel": "in a tree"}
EATS = {"rabbit": "grass and carrots", "cow": "grass", "cat": "mice and fish", "bear":
        "berries, honey and fish", "squirrel": "nuts", "horse": "hay and apples", "owl": "mice",
        "frog": "flies", "fox": "mice and berries", "bee": "nectar from flowers"}
FACTS = (("How many days are in a week?", "There are seven days in a week."),
         ("How many months are in a year?", "There are twelve months in a year."),
         ("What is the capital of France?", "The capital of France is Paris."),
         ("What is the capital of Italy?", "The capital of Italy is Rome."),
         ("What is the capital of Spain?", "The capital of Spain is Madrid."),
         ("What is the capital of Germany?", "The capital of Germany is Berlin."),
         ("What is the capital of England?", "The capital of England is London."),
         ("What is the capital of Japan?", "The capital of Japan is Tokyo."),
         ("What do bees make?", "Bees make honey."), ("What do hens lay?", "Hens lay eggs."),
         ("What is ice made of?", "Ice is made of frozen water."),
         ("What is bread made of?", "Bread is made of flour, water and salt."),
         ("When do leaves fall?", "Leaves fall in autumn."),
         ("When is it cold?", "It is cold in winter."),
         ("What comes after Monday?", "Tuesday comes after Monday."),
         ("What comes after spring?", "Summer comes after spring."),
         ("Why is there a rainbow?", "A rainbow is there because the sun shines on the rain."),
         ("Where does milk come from?", "Milk comes from cows."),
         ("What shines at night?", "The moon and the stars shine at night."))
TALK = ((("Hi", "Hi!", "Hello", "Hello!", "Hey", "Good morning"),
         ("Hello! How can I help you?", "Hello! I can tell you a story.")),
        (("Who are you?", "What are you?", "What is your name?"),
         ("I am a very small language model. I tell stories and answer simple questions.",)),
        (("What can you do?", "Can you help me?"),
         ("I can tell a story, add small numbers and answer simple questions.",)),
        (("How are you?", "How are you today?"), ("I am well, thank you. How are you?",)),
        (("Thank you", "Thanks!", "Thank you!"), ("You are welcome!",)),
        (("Goodbye", "Bye!", "Good night"), ("Goodbye! Come back soon.",)))
WORDS = "zero one two three four five six seven eight nine ten".split()


def ask_story(rng):
    kind, thing, plot = None, None, None
    which = rng.random()
    if which < 0.55:
        kind = rng.choice(stories.ANIMALS)
        about = stories.article(kind)
    elif which < 0.7:
        thing, plot = rng.choice(stories.THINGS), rng.choice(("lost", "build", "honest"))
        about = stories.article(thing)
    elif which < 0.85:
        plot, about = rng.choice((("night", "the dark"), ("storm", "the rain"), ("race", "a race"),
                                  ("garden", "a garden"), ("lonely", "a new friend"),
                                  ("share", "sharing")))
    else:
        about = None
    s = stories.Scene(rng, kind=kind, thing=thing, plot=plot)
    if about is None:
        request = rng.choice(("Tell me a story.", "Please tell me a story.", "Write a story.",
                              "I want to hear a story.", "Can you tell me a story?"))
    else:
        request = rng.choice(("Tell me a story about {}.", "Write a story about {}.",
                              "Please tell me a story about {}.", "Tell me about {}.",
                              "Can you tell me a story about {}?",
                              "I want a story about {}.")).format(about)
    plan = s.say(stories.PLANS[s.plot])
    thoughts = (f"A story about {about or s.say('{aa}')}.",
                s.say("The hero is {A} the {a}.") + f" {plan}.",
                s.say("It begins near {place} and ends well."))
    return request, thoughts, stories.tell(s, short=True)


def ask_sum(rng):
    sign = rng.choice("++-*")
    a, b = (rng.randint(0, 5), rng.randint(0, 5)) if sign == "*" else (rng.randint(0, 10),
                                                                       rng.randint(0, 10))
    if sign == "-":
        a, b = max(a, b), min(a, b)
    result = {"+": a + b, "-": a - b, "*": a * b}[sign]
    word = {"+": "plus", "-": "minus", "*": "times"}[sign]
    request = rng.choice((f"What is {a} {sign} {b}?", f"What is {a} {word} {b}?", f"{a} {sign} {b}",
                          f"{a} {sign} {b} = ?", f"How much is {a} {sign} {b}?",
                          f"What is {WORDS[a]} {word} {WORDS[b]}?"))
    thoughts = (f"{a} {word} {b} is {result}.", f"The numbers are {a} and {b}.",
                f"So the answer is {result}.")
    return request, thoughts, rng.choice((f"{a} {sign} {b} = {result}.",
                                          f"The answer is {result}."))


def ask_fact(rng):
    which = rng.randrange(7)
    if which == 0:
        k, v = rng.choice(sorted(SOUNDS.items()))
        k = stories.article(k)
        request, answer = f"What sound does {k} make?", f"{k.capitalize()} says {v}."
    elif which == 1:
        k, v = rng.choice(sorted(COLORS.items()))
        request = rng.choice((f"What color is {k}?", f"Which color is {k}?"))
        answer = f"{k.capitalize()} is {v}."
    elif which == 2:
        k, v = rng.choice(OPPOSITES)
        if rng.random() < 0.5:
            k, v = v, k
        request, answer = f"What is the opposite of {k}?", f"The opposite of {k} is {v}."
    elif which == 3:
        k, v = rng.choice(sorted(LEGS.items()))
        request, answer = (f"How many legs does {stories.article(k)} have?",
                           f"{stories.article(k).capitalize()} has {v or 'no'} legs.")
    elif which == 4:
        k, v = rng.choice(sorted(LIVES.items()))
        request, answer = (f"Where does {stories.article(k)} live?",
                           f"{stories.article(k).capitalize()} lives {v}.")
    elif which == 5:
        k, v = rng.choice(sorted(EATS.items()))
        request, answer = (f"What does {stories.article(k)} eat?",
                           f"{stories.article(k).capitalize()} eats {v}.")
    else:
        request, answer = rng.choice(FACTS)
    return request, ("This is a simple question.", "I know the answer.",
                     "I will say it in one sentence."), answer


def ask_list(rng):
    name, items = rng.choice((("animals", stories.ANIMALS), ("colors", stories.COLORS),
                              ("names", stories.NAMES["he"] + stories.NAMES["she"]),
                              ("things", stories.THINGS)))
    count = rng.randint(2, 5)
    chosen = rng.sample(items, count)
    return (rng.choice(("Name {} {}.", "Tell me {} {}.")).format(
                rng.choice((WORDS[count], count)), name),
            (f"The user wants {WORDS[count]} {name}.", "I will make a list.",
             f"There must be {WORDS[count]} of them."),
            ", ".join(chosen[:-1]) + " and " + chosen[-1] + ".")


def ask_talk(rng):
    requests, answers = rng.choice(TALK)
    return (rng.choice(requests), ("The user is talking to me.", "I will be friendly.",
                                   "A short answer is best."), rng.choice(answers))


def begin(tag, **attributes):
    out = [(OPEN,), tag]
    for key, value in attributes.items():
        out += [" " + key, '="', value, '"']
    return out + [(SEP,)]


def end(tag):
    return [(CLOSE,), tag, (SEP,)]


def message(content, **attributes):
    return begin("message", **attributes) + content + end("message") + [(EOM,)]


def exchange(rng, effort, thinking):
    ask = rng.choices((ask_story, ask_sum, ask_fact, ask_list, ask_talk), (40, 20, 22, 8, 10))[0]
    request, thoughts, answer = ask(rng)
    if rng.random() < 0.1:
        request = request[0].lower() + request[1:]
    if rng.random() < 0.1:
        request = request.rstrip(".?!")
    count = {"low": 1, None: 2, "high": 2, "max": 3}[effort]
    reply = begin("response") + [answer] + end("response")
    if thinking:
        reply = begin("think") + [" ".join(thoughts[:count])] + end("think") + reply
    return message([request], role="user") + message(reply, role="assistant")


def chat(rng):
    """A conversation as fragments: str is text to encode by itself, (name,) a control token."""
    thinking = rng.random() < 0.85
    effort = rng.choice((None, "low", "high", "max", "max")) if thinking else None
    out = []
    if effort:
        out += message([EFFORT.format(effort)], role="system", type="thinking-effort")
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        out += exchange(rng, effort, thinking)
    return out
