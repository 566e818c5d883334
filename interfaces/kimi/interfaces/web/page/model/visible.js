// Texts of models, tools and files, made harmless for the eye: no terminal sequences, nothing that reorders what stands
// beside it. Markup needs no care here: texts reach the page as text nodes only.

const SUSPECT = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]|\udb40[\udc00-\udc7f]/;
const SEQUENCES = /\u001b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\u001b\][^\u0007\u001b]{0,4096}(?:\u0007|\u001b\\)|\u001b[@-Z\\^_]/g;
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]|\udb40[\udc00-\udc7f]/g;

/** Return the text with hidden characters written out (`\u202e`); sequences that colour a terminal are dropped. */
export function visible(text) {
  if (!SUSPECT.test(text)) return text;
  return text.replace(/\r\n/g, "\n").replace(SEQUENCES, "").replace(HIDDEN, writeOut);
}

/** Return one line of at most `limit` characters: white space is folded. */
export function oneLine(text, limit = 200) {
  const line = visible(text.slice(0, limit * 4)).replace(/\s+/g, " ").trim();
  return line.length > limit ? `${line.slice(0, limit - 1)}…` : line;
}

function writeOut(character) {
  const code = character.codePointAt(0);
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, "0")}`;
}
