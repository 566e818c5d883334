// Markdown to a tree of plain objects: the usual subset (CommonMark's blocks, tables, task lists, links of http, https and
// mailto). What is not understood stays text; HTML is text. Every function takes time that grows with the text.

import { readInline } from "./inline.js";

const DEEPEST = 12;
const FENCE = /^ {0,3}(`{3,}(?!`)|~{3,}(?!~))([^`]*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}(?! )| |$)/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const DELIMITERS = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** Return the blocks of a text. `fence` is the code block in which it begins. */
export function parseMarkdown(text, fence = null) {
  const lines = text.split("\n").map(expandTabs);
  if (!fence) return readBlocks(lines, 0);
  const { block, next } = readCode(lines, 0, fence.marker, fence.info, 0);
  return [block, ...readBlocks(lines.slice(next), 0)];
}

function expandTabs(line) {
  return line.includes("\t") ? line.replace(/^[ \t]+/, (blank) => blank.replace(/\t/g, "    ")) : line;
}

function readBlocks(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) at += 1;
    else {
      const { block, next } = readBlock(lines, at, depth);
      found.push(block);
      at = next;
    }
  }
  return found;
}

function readBlock(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return readCode(lines, at + 1, fence[1], fence[2].trim(), line.search(/\S/));
  const heading = HEADING.exec(line);
  if (heading) return { block: { t: "h", n: heading[1].length, c: readInline(headingText(line)) }, next: at + 1 };
  if (RULE.test(line)) return { block: { t: "hr" }, next: at + 1 };
  if (depth < DEEPEST) {
    if (/^ {0,3}>/.test(line)) return readQuote(lines, at, depth);
    if (ITEM.test(line)) return readList(lines, at, depth);
  }
  if (/^ {4}/.test(line)) return readIndented(lines, at);
  if (line.includes("|") && at + 1 < lines.length && isTable(line, lines[at + 1])) return readTable(lines, at);
  return readParagraph(lines, at);
}

function headingText(line) {
  const text = line.trim().replace(/^#+/, "").trim();
  let end = text.length;
  while (end && text[end - 1] === "#") end -= 1;
  return end === 0 || text[end - 1] === " " ? text.slice(0, end).trim() : text;
}

function readCode(lines, at, marker, info, indent) {
  const kept = [];
  let next = at;
  for (; next < lines.length; next += 1) {
    const line = lines[next].trim();
    if (line.length >= marker.length && line[0] === marker[0] && line === marker[0].repeat(line.length)) {
      return { block: { t: "code", info, text: kept.join("\n"), closed: true }, next: next + 1 };
    }
    kept.push(indent > 0 ? lines[next].replace(new RegExp(`^ {0,${Math.min(indent, 12)}}`), "") : lines[next]);
  }
  return { block: { t: "code", info, text: kept.join("\n"), closed: false }, next };
}

function readIndented(lines, at) {
  const kept = [];
  let next = at;
  while (next < lines.length && (/^ {4}/.test(lines[next]) || !lines[next].trim())) kept.push(lines[next++].slice(4));
  while (kept.length && !kept.at(-1).trim()) kept.pop();
  return { block: { t: "code", info: "", text: kept.join("\n"), closed: true }, next };
}

function readQuote(lines, at, depth) {
  const kept = [];
  let next = at;
  for (; next < lines.length; next += 1) {
    const mark = /^ {0,3}> ?/.exec(lines[next]);
    if (mark) kept.push(lines[next].slice(mark[0].length));
    else if (lines[next].trim() && !beginsBlock(lines[next])) kept.push(lines[next]);
    else break;
  }
  return { block: { t: "quote", b: readBlocks(kept, depth + 1) }, next };
}

function readList(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const kind = first[2].at(-1);
  const block = { t: "list", ordered: first[2].length > 1, start: parseInt(first[2], 10) || 0, loose: false, items: [] };
  let next = at;
  while (next < lines.length) {
    const mark = ITEM.exec(lines[next]);
    if (!mark || mark[2].at(-1) !== kind || RULE.test(lines[next])) break;
    const item = readItem(lines, next, mark);
    if (item.loose && item.next < lines.length && ITEM.test(lines[item.next])) block.loose = true;
    block.items.push(makeItem(item.lines, depth));
    next = item.next;
  }
  return { block, next };
}

function readItem(lines, at, mark) {
  const width = mark[0].length + (mark[3] ? 0 : 1);
  const kept = [lines[at].slice(mark[0].length)];
  let next = at + 1;
  let blanks = 0;
  for (; next < lines.length; next += 1) {
    const line = lines[next];
    if (!line.trim()) blanks += 1;
    else if (line.search(/\S/) >= width) {
      while (blanks) kept.push(""), (blanks -= 1);
      kept.push(line.slice(width));
    } else if (!blanks && !beginsBlock(line)) kept.push(line.trimStart());
    else break;
  }
  return { lines: kept, next, loose: blanks > 0 };
}

function makeItem(lines, depth) {
  const task = /^\[([ xX])\](?: |$)/.exec(lines[0]);
  if (task) lines[0] = lines[0].slice(task[0].length);
  return { task: task ? task[1] !== " " : null, b: readBlocks(lines, depth + 1) };
}

function beginsBlock(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || /^ {0,3}>/.test(line) || ITEM.test(line);
}

function isTable(head, delimiters) {
  return delimiters.includes("-") && delimiters.length < 2000 && DELIMITERS.test(delimiters)
    && splitCells(head).length === splitCells(delimiters).length;
}

function readTable(lines, at) {
  const align = splitCells(lines[at + 1]).map((cell) => {
    const left = cell.startsWith(":");
    return cell.endsWith(":") ? (left ? "center" : "right") : left ? "left" : "";
  });
  const head = splitCells(lines[at]).map(readInline);
  const rows = [];
  let next = at + 2;
  for (; next < lines.length && lines[next].includes("|") && lines[next].trim(); next += 1) {
    rows.push(splitCells(lines[next]).slice(0, head.length).map(readInline));
  }
  return { block: { t: "table", align, head, rows }, next };
}

function splitCells(line) {
  const cells = [];
  let cell = "";
  const text = line.trim().replace(/^\|/, "");
  let inCode = false;
  for (let at = 0; at < text.length; at += 1) {
    const c = text[at];
    if (c === "\\" && text[at + 1] === "|") cell += "|", (at += 1);
    else if (c === "|" && !inCode) cells.push(cell.trim()), (cell = "");
    else {
      if (c === "`") inCode = !inCode && text.indexOf("`", at + 1) > 0;
      cell += c;
    }
  }
  if (cell.trim()) cells.push(cell.trim());
  return cells;
}

function readParagraph(lines, at) {
  const kept = [lines[at].trimStart()];
  let next = at + 1;
  for (; next < lines.length && lines[next].trim(); next += 1) {
    const under = /^ {0,3}(=+|-+)[ \t]*$/.exec(lines[next]);
    if (under) return { block: { t: "h", n: under[1][0] === "=" ? 1 : 2, c: readInline(kept.join("\n")) }, next: next + 1 };
    if (interrupts(lines[next])) break;
    kept.push(lines[next].trimStart());
  }
  return { block: { t: "p", c: readInline(kept.join("\n").trimEnd()) }, next };
}

function interrupts(line) {
  const item = ITEM.exec(line);
  if (item) return item[0].length < line.length && (item[2].length === 1 || parseInt(item[2], 10) === 1);
  return beginsBlock(line);
}
