// SPDX-License-Identifier: Apache-2.0
// node compare.cjs K3RING FOLDER [QUICK]: token ids of `k3ring tokenize` against those of tiktoken,
// the released tokenizer library, with the pattern of Kimi K3 over the ranks of o200k_base.
'use strict';
const fs = require('fs');
const path = require('path');
const { spawnSync } = require('child_process');
const { Tiktoken } = require('tiktoken');
const o200k = require('tiktoken/encoders/o200k_base.json');
const { slices } = require('./slices.cjs');
const { texts } = require('./corpus.cjs');

const [k3ring, folder, quick] = process.argv.slice(2);
const SEED = 20260101;
const SCALE = quick ? 0.06 : 1;
const BYTES_WANTED = quick ? 5e6 : 50e6;

const pattern = [
  '[\\p{Han}]+',
  '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*'
    + '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:\'s|\'t|\'re|\'ve|\'m|\'ll|\'d)?',
  '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+'
    + '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*(?i:\'s|\'t|\'re|\'ve|\'m|\'ll|\'d)?',
  '\\p{N}{1,3}',
  ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*',
  '\\s*[\\r\\n]+',
  '\\s+(?!\\S)',
  '\\s+',
].join('|');

// The package's ranks are lines of "! FIRST token token ..."; ours are one token a line.
function writeModel(file) {
  const lines = [];
  for (const row of o200k.bpe_ranks.split('\n').filter(Boolean)) {
    const [, first, ...tokens] = row.split(' ');
    tokens.forEach((token, i) => lines.push(`${token} ${Number(first) + i}`));
  }
  fs.writeFileSync(file, `${lines.join('\n')}\n`);
  return lines.length;
}

const named = {
  0: '[BOS]', 1: '[EOS]', 2: '<|end_of_msg|>', 3: '<|open|>', 4: '<|close|>', 5: '<|sep|>', 6: '[start_header_id]',
  7: '[end_header_id]', 9: '[EOT]', 18: '<|media_begin|>', 19: '<|media_content|>', 20: '<|media_end|>',
  21: '<|media_pad|>', 65: '<osagent_mode>', 254: '[UNK]', 255: '[PAD]',
};

function addedTokens(first) {
  const added = {};
  for (let i = 0; i < 256; i++) {
    added[named[i] || `<|reserved_token_${first + i}|>`] = first + i;
  }
  return added;
}

// The text with added tokens, and beginnings of them, strewn in.
function strewn(text, added) {
  const names = Object.keys(added);
  const characters = Array.from(text);
  const step = Math.max(50, Math.floor(characters.length / 20000));
  const parts = [];
  for (let at = 0, i = 0; at < characters.length; at += step, i++) {
    const name = names[(i * 7) % names.length];
    parts.push(...characters.slice(at, at + step), i % 3 === 0 ? name.slice(0, i % name.length) : name);
  }
  return parts.join('');
}

function run(file, args) {
  const done = spawnSync(k3ring, ['tokenize', path.join(folder, 'o200k.model'), ...args],
    { stdio: [fs.openSync(file, 'r'), 'pipe', 'pipe'], maxBuffer: 1 << 30 });
  if (done.status !== 0) {
    throw new Error(`k3ring tokenize ${args.join(' ')}: status ${done.status}: ${done.stderr}`);
  }
  return done.stdout;
}

function difference(name, oracle, ours, theirs) {
  let i = 0;
  while (ours[i] === theirs[i]) {
    i++;
  }
  const show = (ids) => JSON.stringify(Buffer.from(oracle.decode(
    Uint32Array.from(ids.slice(Math.max(0, i - 4), i + 6)))).toString());
  return `${name}: ids differ from number ${i} on (seed ${SEED})\n  k3ring   ${ours.slice(i, i + 8)} ${show(ours)}\n`
    + `  tiktoken ${Array.from(theirs.slice(i, i + 8))} ${show(theirs)}`;
}

// Ids of both, and k3ring's way back. Returns how many ids there are.
function compare(name, text, oracle, special) {
  const file = path.join(folder, 'text.in');
  const back = path.join(folder, 'text.ids');
  fs.writeFileSync(file, text);
  const printed = run(file, special ? ['--allow-special', '--json'] : ['--json']);
  const ours = JSON.parse(printed);
  const theirs = [];
  for (const slice of slices(text)) {
    for (const id of oracle.encode(slice, special ? 'all' : [], [])) {
      theirs.push(id);
    }
  }
  if (ours.length !== theirs.length || ours.some((id, i) => id !== theirs[i])) {
    throw new Error(difference(name, oracle, ours, theirs));
  }
  fs.writeFileSync(back, printed);
  if (!run(back, ['--decode']).equals(fs.readFileSync(file))) {
    throw new Error(`${name}: decoding does not give the text back`);
  }
  return ours.length;
}

function main() {
  const first = writeModel(path.join(folder, 'o200k.model'));
  const added = addedTokens(first);
  const oracle = new Tiktoken(o200k.bpe_ranks, added, pattern);
  let bytes = 0;
  let count = 0;
  const one = (name, text, special) => {
    const ids = compare(name, text, oracle, special);
    const size = Buffer.byteLength(text);
    bytes += size;
    count += ids;
    console.log(`  ${(size / 1e6).toFixed(2).padStart(6)} MB ${String(ids).padStart(9)} ids  ${name}`);
  };
  for (const [name, text] of texts(SEED, SCALE)) {
    one(name, text, false);
    if (name === 'classes' || name === 'English') {
      one(`${name}, added tokens`, strewn(text, added), true);
      one(`${name}, added tokens as text`, strewn(text.slice(0, 1 << 18), added), false);
    }
  }
  if (bytes < BYTES_WANTED) {
    throw new Error(`only ${bytes} bytes of text were found on this system, ${BYTES_WANTED} are wanted`);
  }
  console.log(`test-oracle: ${count} ids equal on ${(bytes / 1e6).toFixed(1)} MB of text`);
}

try {
  main();
} catch (error) {
  console.error(`test-oracle: ${error.message}`);
  process.exitCode = 1;
}
