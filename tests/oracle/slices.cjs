// SPDX-License-Identifier: Apache-2.0
// How a text is cut before it is encoded, written from the description and not from k3ring: every
// 400,000 characters; then wherever more than 25,000 of them on end are white space, or are none.
'use strict';

const CUT = 400000;
const RUN = 25000;
// What Python's str.isspace() holds true for.
const space = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;

function runs(characters) {
  const slices = [];
  let begin = 0;
  let length = 0;
  let last = null;
  characters.forEach((character, i) => {
    const now = space.test(character);
    length = now === last ? length + 1 : 1;
    last = now;
    if (length > RUN) {
      slices.push(characters.slice(begin, i).join(''));
      begin = i;
      length = 1;
    }
  });
  slices.push(characters.slice(begin).join(''));
  return slices;
}

exports.slices = function slices(text) {
  const characters = Array.from(text);
  const all = [];
  for (let at = 0; at < characters.length; at += CUT) {
    all.push(...runs(characters.slice(at, at + CUT)));
  }
  return all;
};
