// Streamed Markdown in chunks of a few kilobytes: only the last one is still open, so that drawing a further piece costs
// the same whether the answer has ten lines or ten thousand.

const WANTED = 800;
const LONGEST = 6000;
const FENCE = /^[ \t]{0,12}(?:(?:[-*+]|\d{1,9}[.)])[ \t]{1,4})?(`{3,}(?!`)|~{3,}(?!~))([^`\n]*)$/;
const LIST = /^[ \t]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)/;

/** Return an open chunk. `fence` is the code block that goes on from the chunk before, `joined` says mid-line. */
export function newChunk(fence = null, joined = false) {
  return { text: "", fence, joined, scanned: 0, inFence: fence, blank: false, list: false };
}

/** Add a piece. Return the chunks that follow `chunk`, the last of them open; usually none. */
export function addText(chunk, piece) {
  const more = [];
  let open = chunk;
  open.text += piece;
  for (;;) {
    const cut = findCut(open);
    if (cut === null) return more;
    const next = newChunk(cut.fence, cut.joined);
    next.text = open.text.slice(cut.at);
    open.text = open.text.slice(0, cut.at);
    more.push(next);
    open = next;
  }
}

function findCut(chunk) {
  const { text } = chunk;
  for (let end = text.indexOf("\n", chunk.scanned); end >= 0; end = text.indexOf("\n", chunk.scanned)) {
    const start = chunk.scanned;
    const line = text.slice(start, end);
    if (isCutBefore(chunk, line, start)) return { at: start, fence: null, joined: false };
    chunk.scanned = end + 1;
    readLine(chunk, line);
    if (end >= LONGEST) return { at: end + 1, fence: chunk.inFence, joined: false };
  }
  if (text.length < LONGEST + 2000) return null;
  const blank = text.lastIndexOf(" ", LONGEST + 1000);
  return { at: blank > LONGEST / 2 ? blank + 1 : LONGEST, fence: chunk.inFence, joined: true };
}

function isCutBefore(chunk, line, start) {
  if (chunk.inFence || !chunk.blank || start < WANTED || !/^\S/.test(line)) return false;
  return !(chunk.list && LIST.test(line));
}

function readLine(chunk, line) {
  const mark = FENCE.exec(line);
  if (chunk.inFence) {
    const { marker } = chunk.inFence;
    if (mark && mark[1][0] === marker[0] && mark[1].length >= marker.length && !mark[2].trim()) chunk.inFence = null;
    return;
  }
  chunk.blank = !line.trim();
  if (mark) chunk.inFence = { marker: mark[1], info: mark[2].trim() };
  else if (/^\S/.test(line)) chunk.list = LIST.test(line);
}
