// What stands within a paragraph: emphasis, code, links, pictures. A node is a string or an object with `t`.

const PUNCTUATION = /[!-/:-@[-`{-~\u2010-\u2027\u3000-\u303f\uff01-\uff0f]/;
const ADDRESS = /https?:\/\/[^\s<>"'\u3000-\u303f\uff00-\uffef`]+/y;
const NAMED = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", apos: "'" };
const DEEPEST = 16;
const SEARCHED = 60;
const LONGEST = 1000;  // characters of an address

/** Return the nodes of a text. */
export function readInline(text) {
  const reader = { text, at: 0, nodes: [], plain: "", brackets: [], ticks: new Map() };
  while (reader.at < text.length) {
    const read = READERS[text[reader.at]];
    if (!read || !read(reader)) reader.plain += text[reader.at++];
  }
  flush(reader);
  return pair(reader.nodes);
}

const READERS = {
  "\\": readEscape,
  "`": readCode,
  "*": readRun,
  "_": readRun,
  "~": readRun,
  "[": (reader) => openBracket(reader, 1),
  "!": (reader) => reader.text[reader.at + 1] === "[" && openBracket(reader, 2),
  "]": closeBracket,
  "<": readAngle,
  "&": readEntity,
  "\n": readBreak,
  h: readAddress,
};

function flush(reader) {
  if (reader.plain) reader.nodes.push(reader.plain);
  reader.plain = "";
}

function push(reader, node, length) {
  flush(reader);
  reader.nodes.push(node);
  reader.at += length;
  return true;
}

function readEscape(reader) {
  const next = reader.text[reader.at + 1];
  if (next === "\n") return push(reader, { t: "br" }, 2);
  if (next === undefined || !/[!-/:-@[-`{-~]/.test(next)) return false;
  reader.plain += next;
  reader.at += 2;
  return true;
}

function readCode(reader) {
  const { text, at } = reader;
  let size = 1;
  while (text[at + size] === "`") size += 1;
  if (!(reader.ticks.get(size) < at)) {
    for (let end = text.indexOf("`", at + size); end >= 0; ) {
      let run = 1;
      while (text[end + run] === "`") run += 1;
      if (run === size) {
        let code = text.slice(at + size, end).replace(/\n/g, " ");
        if (/^ .*\S.* $/.test(code)) code = code.slice(1, -1);
        return push(reader, { t: "code", text: code }, end + run - at);
      }
      end = text.indexOf("`", end + run);
    }
    reader.ticks.set(size, at);  // none of this length follows: later ones need no search
  }
  reader.plain += text.slice(at, at + size);
  reader.at += size;
  return true;
}

function readRun(reader) {
  const { text, at } = reader;
  const c = text[at];
  let size = 1;
  while (text[at + size] === c) size += 1;
  if (size > 6 || (c === "~" && size > 2)) {
    reader.plain += text.slice(at, at + size);
    reader.at += size;
    return true;
  }
  const before = at ? text[at - 1] : " ";
  const after = text[at + size] ?? " ";
  const left = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
  const right = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
  const opens = c === "_" ? left && (!right || PUNCTUATION.test(before)) : left;
  const closes = c === "_" ? right && (!left || PUNCTUATION.test(after)) : right;
  return push(reader, { t: "run", c, n: size, opens, closes }, size);
}

function openBracket(reader, size) {
  flush(reader);
  reader.brackets.push({ at: reader.nodes.length, image: size === 2 });
  reader.nodes.push(size === 2 ? "![" : "[");
  reader.at += size;
  return true;
}

function closeBracket(reader) {
  const bracket = reader.brackets.pop();
  if (!bracket) return false;
  const target = reader.text[reader.at + 1] === "(" ? readTarget(reader.text, reader.at + 2) : null;
  if (!target) return false;
  flush(reader);
  const inner = pair(reader.nodes.splice(bracket.at).slice(1));
  reader.nodes.push({ t: bracket.image ? "img" : "a", url: target.url, c: inner });
  if (!bracket.image) reader.brackets.length = 0;  // no link within a link
  reader.at = target.next;
  return true;
}

function readTarget(text, from) {
  let at = skipBlank(text, from);
  let url = "";
  if (text[at] === "<") {
    const end = text.indexOf(">", at);
    if (end < 0 || end - at > LONGEST) return null;
    url = text.slice(at + 1, end);
    at = end + 1;
  } else {
    const start = at;
    for (let open = 0; at < text.length && at - start < LONGEST; at += 1) {
      const c = text[at];
      if (c === "(") open += 1;
      else if (c === ")" && (open -= 1) < 0) break;
      else if (/\s/.test(c)) break;
    }
    url = text.slice(start, at);
  }
  at = skipBlank(text, at);
  if (text[at] === '"' || text[at] === "'") {
    const end = text.slice(at + 1, at + 300).indexOf(text[at]);
    if (end < 0) return null;
    at = skipBlank(text, at + end + 2);
  }
  return text[at] === ")" ? { url, next: at + 1 } : null;
}

function skipBlank(text, from) {
  let at = from;
  while (at - from < 100 && /\s/.test(text[at] ?? "")) at += 1;
  return at;
}

function readAngle(reader) {
  const rest = reader.text.slice(reader.at, reader.at + 2000);
  const link = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/.exec(rest);
  if (link) return push(reader, { t: "a", url: link[1], c: [link[1]] }, link[0].length);
  const line = /^<br\s{0,3}\/?>/i.exec(rest);
  return line ? push(reader, { t: "br" }, line[0].length) : false;
}

function readEntity(reader) {
  const found = /^&([a-z]{2,4});/.exec(reader.text.slice(reader.at, reader.at + 7));
  if (!found || !(found[1] in NAMED)) return false;
  reader.plain += NAMED[found[1]];
  reader.at += found[0].length;
  return true;
}

function readBreak(reader) {
  const hard = reader.plain.endsWith("  ");
  reader.plain = reader.plain.trimEnd();
  if (hard) return push(reader, { t: "br" }, 1);
  flush(reader);  // a text that grew by one line after another would be copied for each of them
  reader.plain = "\n";
  reader.at += 1;
  return true;
}

function readAddress(reader) {
  ADDRESS.lastIndex = reader.at;
  if (/\w/.test(reader.text[reader.at - 1] ?? "")) return false;
  const found = ADDRESS.exec(reader.text);
  if (!found) return false;
  let opened = 0;
  for (const c of found[0]) opened += c === "(" ? 1 : c === ")" ? -1 : 0;
  let end = found[0].length;
  for (let last = found[0][end - 1]; end && (/[.,;:!?*_~\]]/.test(last) || (last === ")" && opened < 0)); last = found[0][end - 1]) {
    if (last === ")") opened += 1;
    end -= 1;
  }
  const url = found[0].slice(0, end);
  return push(reader, { t: "a", url, c: [url] }, url.length);
}

// Pairs runs of `*`, `_` and `~` to emphasis; what finds no partner is text.
function pair(nodes) {
  const out = [];
  const openers = [];
  for (const node of nodes) {
    if (node.t !== "run") out.push(node);
    else closeRun(node, out, openers);
  }
  for (const { run, at } of openers) out[at] = run.c.repeat(run.n);
  return join(out);
}

function closeRun(run, out, openers) {
  while (run.closes && run.n) {
    const found = findOpener(run, openers);
    if (found < 0) break;
    const { run: opener, at } = openers[found];
    const size = run.c === "~" ? run.n : Math.min(2, run.n, opener.n);
    for (const { run: left, at: place } of openers.splice(found + 1)) out[place] = left.c.repeat(left.n);
    const inner = join(out.splice(at + 1));
    const depth = 1 + inner.reduce((most, node) => Math.max(most, node.depth ?? 0), 0);
    const mark = run.c.repeat(size);
    opener.n -= size;
    run.n -= size;
    if (!opener.n) out.length = at, openers.pop();
    if (depth > DEEPEST) out.push(mark, ...inner, mark);
    else out.push({ t: run.c === "~" ? "s" : size === 2 ? "b" : "i", c: inner, depth });
  }
  if (!run.n) return;
  if (run.opens) openers.push({ run, at: out.length });
  out.push(run.c.repeat(run.n));
}

function findOpener(run, openers) {
  for (let at = openers.length - 1; at >= 0 && at >= openers.length - SEARCHED; at -= 1) {
    const other = openers[at].run;
    if (other.c !== run.c || (run.c === "~" && other.n !== run.n)) continue;
    const both = (run.opens || other.closes) && (run.n + other.n) % 3 === 0 && (run.n % 3 || other.n % 3);
    if (!both) return at;
  }
  return -1;
}

function join(nodes) {
  const out = [];
  for (const node of nodes) {
    if (typeof node === "string" && typeof out.at(-1) === "string") out[out.length - 1] += node;
    else out.push(node);
  }
  return out;
}
