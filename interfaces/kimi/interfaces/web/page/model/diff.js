// Lines of two texts compared (Myers), with the changed part of lines that belong together.

const MOST_EDITS = 1000;

/** Return the rows of a change: `{op, old, new, text, from, to}`; `op` is " ", "-" or "+", the numbers count from 1. */
export function diffRows(oldText, newText, oldStart = 1, newStart = 1) {
  const before = splitLines(oldText);
  const after = splitLines(newText);
  const rows = compare(before, after);
  let oldLine = oldStart;
  let newLine = newStart;
  for (const row of rows) {
    row.old = row.op === "+" ? null : oldLine++;
    row.new = row.op === "-" ? null : newLine++;
  }
  markChanges(rows);
  return rows;
}

/** Return how many lines a change adds and removes. */
export function countChanges(rows) {
  return { added: rows.filter((row) => row.op === "+").length, removed: rows.filter((row) => row.op === "-").length };
}

/** Return the rows with runs of more than `around * 2` equal lines replaced by `{op: "…", count}`. */
export function foldEqual(rows, around = 3) {
  const out = [];
  for (let at = 0; at < rows.length; ) {
    let end = at;
    while (end < rows.length && rows[end].op === " ") end += 1;
    const head = at ? around : 0;
    const tail = end < rows.length ? around : 0;
    if (end - at > head + tail + 1) {
      out.push(...rows.slice(at, at + head), { op: "…", count: end - at - head - tail }, ...rows.slice(end - tail, end));
    } else out.push(...rows.slice(at, end));
    while (end < rows.length && rows[end].op !== " ") out.push(rows[end++]);
    at = end;
  }
  return out;
}

function splitLines(text) {
  if (!text) return [];
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

function compare(before, after) {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1;
  let tail = 0;
  const most = Math.min(before.length, after.length) - head;
  while (tail < most && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
  const equal = (lines) => lines.map((text) => ({ op: " ", text }));
  const middle = myers(before.slice(head, before.length - tail), after.slice(head, after.length - tail));
  return [...equal(before.slice(0, head)), ...middle, ...equal(before.slice(before.length - tail))];
}

function myers(a, b) {
  const trace = [];
  const most = Math.min(a.length + b.length, MOST_EDITS);
  const ends = new Int32Array(2 * most + 3);
  for (let d = 0; d <= most; d += 1) {
    trace.push(ends.slice(most - d, most + d + 3));
    for (let k = -d; k <= d; k += 2) {
      const at = most + 1 + k;
      const down = k === -d || (k !== d && ends[at - 1] < ends[at + 1]);
      let x = down ? ends[at + 1] : ends[at - 1] + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      ends[at] = x;
      if (x >= a.length && x - k >= b.length) return walkBack(trace, a, b);
    }
  }
  return replaceAll(a, b);
}

function walkBack(trace, a, b) {
  const rows = [];
  let x = a.length;
  let y = b.length;
  for (let d = trace.length - 1; d >= 0; d -= 1) {
    const ends = trace[d];  // of the diagonals -d-1 to d+1
    const at = x - y + d + 1;
    const down = at === 1 || (at !== 2 * d + 1 && ends[at - 1] < ends[at + 1]);
    const startX = down ? ends[at + 1] : ends[at - 1];
    const startY = startX - (x - y) - (down ? 1 : -1);
    while (x > startX && y > startY && x > 0 && y > 0) rows.push({ op: " ", text: a[(x -= 1, y -= 1, x)] });
    if (d > 0) rows.push(down ? { op: "+", text: b[(y -= 1)] } : { op: "-", text: a[(x -= 1)] });
  }
  return sortHunks(rows.reverse());
}

// Within a hunk the lines that go stand before those that come.
function sortHunks(rows) {
  const out = [];
  for (let at = 0; at < rows.length; ) {
    if (rows[at].op === " ") out.push(rows[at++]);
    else {
      let end = at;
      while (end < rows.length && rows[end].op !== " ") end += 1;
      const hunk = rows.slice(at, end);
      out.push(...hunk.filter((row) => row.op === "-"), ...hunk.filter((row) => row.op === "+"));
      at = end;
    }
  }
  return out;
}

function replaceAll(a, b) {
  return [...a.map((text) => ({ op: "-", text })), ...b.map((text) => ({ op: "+", text }))];
}

// Where as many lines go as come, each pair shows what differs within it.
function markChanges(rows) {
  for (let at = 0; at < rows.length; ) {
    let middle = at;
    while (middle < rows.length && rows[middle].op === "-") middle += 1;
    let end = middle;
    while (end < rows.length && rows[end].op === "+") end += 1;
    if (middle > at && end - middle === middle - at) {
      for (let pair = 0; pair < middle - at; pair += 1) markPair(rows[at + pair], rows[middle + pair]);
    }
    at = Math.max(end, at + 1);
  }
}

function markPair(before, after) {
  const a = before.text;
  const b = after.text;
  const most = Math.min(a.length, b.length);
  let head = 0;
  while (head < most && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < most - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  if (head + tail < Math.max(a.length, b.length) * 0.3) return;
  Object.assign(before, { from: head, to: a.length - tail });
  Object.assign(after, { from: head, to: b.length - tail });
}
