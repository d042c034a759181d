// SPDX-License-Identifier: Apache-2.0
// Texts to compare tokenizers on: what lies about on any Debian system, and what a seeded generator
// makes. Every text is a name and a string without lone surrogates.
'use strict';
const fs = require('fs');
const path = require('path');

// ---- chance ----

function generator(seed) {
  let state = seed >>> 0;
  const next = () => { // mulberry32
    state = (state + 0x6D2B79F5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
  const below = (n) => next() % n;
  return { below, pick: (list) => list[below(list.length)] };
}

function fill(size, make) {
  const parts = [];
  for (let length = 0; length < size;) {
    const part = make();
    parts.push(part);
    length += Buffer.byteLength(part);
  }
  return parts.join('');
}

// ---- files ----

const places = [
  ['C headers', '/usr/include', 4],
  ['licences', '/usr/share/common-licenses', 1],
  ['perl', '/usr/share/perl', 3],
  ['perl base', '/usr/lib/x86_64-linux-gnu/perl-base', 2],
  ['python', '/usr/lib/python3', 3],
  ['locales', '/usr/share/i18n', 4],
  ['documents', '/usr/share/doc', 4],
  ['javascript', '/usr/share/nodejs', 3],
];

// Files below a folder in a fixed order, up to limit bytes; what is not UTF-8 is replaced.
function readFolder(folder, limit) {
  const parts = [];
  let left = limit;
  const walk = (dir) => {
    let entries;
    try {
      entries = fs.readdirSync(dir, { withFileTypes: true });
    } catch {
      return;
    }
    entries.sort((a, b) => (a.name < b.name ? -1 : 1));
    for (const entry of entries) {
      const full = path.join(dir, entry.name);
      if (left <= 0) {
        return;
      }
      if (entry.isDirectory()) {
        walk(full);
      } else if (entry.isFile() && !/\.(gz|bz2|xz|so|pyc|png|a)$/.test(entry.name)) {
        const bytes = fs.readFileSync(full).subarray(0, Math.min(left, 400000));
        parts.push(bytes.toString('utf8'));
        left -= bytes.length;
      }
    }
  };
  walk(folder);
  return parts.join('');
}

// ---- made ----

function characters(first, last) {
  const all = [];
  for (let code = first; code <= last; code++) {
    if (code < 0xD800 || code > 0xDFFF) {
      all.push(String.fromCodePoint(code));
    }
  }
  return all;
}

// What the pattern tells apart, and what looks like it.
const alphabet = [
  'A', 'B', 'Z', 'a', 'b', 'z', 'É', 'é', 'ß', 'ǅ', 'ǈ', 'ʰ', 'ⁿ', 'א', 'あ', 'ア', 'ｱ', '한', 'Ａ', 'ａ',
  '中', '文', '々', '〇', '〡', '⺀', '⼀', '豈', '\u{20000}', '\u{2EBF0}', '\u{31350}', '\u{16FF0}',
  '1', '2', '²', 'Ⅷ', '½', '٣', '①', '\u0301', '\u0308', '\u0903', '\u20dd', '\ufe0f', '\u200d',
  ' ', ' ', ' ', '  ', '\t', '\n', '\n', '\r', '\r\n', '\v', '\f', '\x1c', '\x1f', '\x85', '\xa0',
  '\u1680', '\u180e', '\u2003', '\u200b', '\u2028', '\u202f', '\u3000', '\ufeff', '\0', '\x7f',
  '\'', '\'s', '\'S', '\'ſ', '\'t', '\'re', '\'RE', '\'vE', '\'ll', '\'Lſ', '\'m', '\'d', '\'x', '’s',
  '!', '.', ',', '/', '//', '_', '-', '"', '(', ')', '{', '=', '+', '$', '€', '。', '、', '「', '·',
  '😀', '👩', '👍🏽', '🇪🇺', '❤️', '\ufffd', '\ue000', '\u0378', '\u{1D400}', '\u{10400}', '\u{10428}',
];

const emoji = ['👩‍💻', '👨‍👩‍👧‍👦', '🏳️‍🌈', '👍🏿', '🇯🇵', '1️⃣', '☺️', '🧑🏽‍🚀', '🫠', '❤️‍🔥', '©', '™️'];

const spaces = [' ', '\t', '\n', '\r', '\v', '\f', '\x85', '\xa0', '\u1680', '\u2000', '\u2028', '\u2029',
  '\u202f', '\u205f', '\u3000', '\u180e', '\u200b', '\x1c', '\x1d', '\x1e', '\x1f'];

const english = ('the of and to in is that it was for on are as with his they be at one have this from or had '
  + 'by hot word but what some we can out other were all there when up use your how said an each she which do '
  + 'their time if will way about many then them write would like so these her long make thing see him two has '
  + 'look more day could go come did number sound no most people my over know water than call first who may down '
  + 'side been now find internationalisation antidisestablishmentarianism').split(' ');

function word(random, alphabetOfScript, most) {
  return fill(1 + random.below(most), () => random.pick(alphabetOfScript));
}

// Text of one script: words, marks, spaces.
function script(random, size, letters, between) {
  return fill(size, () => word(random, letters, 12) + random.pick(between));
}

// Every stride-th character there is, where it may change what is beside it.
function everyCharacter(random, stride) {
  const parts = [];
  const all = characters(0, 0x33FFF).concat(characters(0xE0000, 0xE0FFF), characters(0xFFF00, 0x10010F));
  for (const c of all.filter((_, i) => i % stride === 0)) {
    parts.push(c, 'a', c, 'B', c, '1', c, ' ', c, c, '!', c, '\n', '中', c, '\'', c, '\u0301', random.pick(alphabet));
  }
  return parts.join('');
}

function randomBytes(random, size) {
  const bytes = Buffer.alloc(size);
  for (let i = 0; i < size; i++) {
    bytes[i] = random.below(256);
  }
  return bytes.toString('utf8');
}

// Runs around the length at which a text is cut, of what is costly to merge or to split: tiktoken takes
// seconds for each of them.
function longRuns(random, count) {
  const units = ['a', 'A', ' ', '\n', '中', '\u0301', '!', ' \n', 'ab', 'é', '😀', '1', '\u3000'];
  return fill(count * 25000, () => random.pick(units).repeat(random.pick([10, 300, 24999, 25000, 25001]))
    + random.pick(alphabet));
}

// count megabytes in all, more or less; the same for the same seed and system.
exports.texts = function texts(seed, scale) {
  const random = generator(seed);
  const mb = (n) => Math.ceil(n * 1e6 * scale);
  const made = [
    ['classes', fill(mb(3), () => random.pick(alphabet))],
    ['words and classes', fill(mb(3), () => random.pick([' ', '']) + random.pick(english) + random.pick(alphabet))],
    ['English', fill(mb(2), () => random.pick(english) + random.pick([' ', ' ', ' ', ', ', '. ', '\n', '\'s ']))],
    ['every character', everyCharacter(random, scale < 1 ? 7 : 1)],
    ['Han', script(random, mb(2), characters(0x4E00, 0x9FFF), ['，', '。', '', '\n', ' '])],
    ['Japanese', script(random, mb(2), characters(0x3041, 0x30FF).concat(characters(0x4E00, 0x4FFF)), ['、', '。', ''])],
    ['Korean', script(random, mb(2), characters(0xAC00, 0xD7A3), [' ', '. '])],
    ['Arabic', script(random, mb(2), characters(0x621, 0x652), [' ', '، ', '. '])],
    ['Indic', script(random, mb(2), characters(0x900, 0xD7F), [' ', '। '])],
    ['Cyrillic and Greek', script(random, mb(2), characters(0x370, 0x52F), [' ', ', '])],
    ['emoji', fill(mb(2), () => random.pick(emoji) + random.pick(['', '', ' ', 'a', '\n']))],
    ['marks', script(random, mb(2), ['a', 'E', 'n', ...characters(0x300, 0x36F)], [' ', ''])],
    ['white space', fill(mb(2), () => word(random, spaces, 9) + random.pick(['', 'x', '.', '1']))],
    ['bytes', randomBytes(random, mb(2))],
    ['runs', longRuns(random, Math.ceil(16 * scale))],
  ];
  const found = places.map(([name, folder, size]) => [name, readFolder(folder, mb(size))]);
  return found.concat(made).filter(([, text]) => text.length > 0);
};
