// Draws a change of a file: numbered lines, what goes and what comes, and what differs within a line.

import { countChanges, diffRows, foldEqual } from "../model/diff.js";
import { findLanguage } from "../model/highlight.js";
import { visible } from "../model/visible.js";
import { t } from "../texts.js";
import { el, relative, txt } from "./dom.js";
import { drawTokens } from "./markdown_view.js";

const ROWS_PER_GROUP = 200;

/** Return the change of one display block. `whole` shows every line, also long runs of equal ones. */
export function drawDiff(block, whole = false) {
  const rows = diffRows(block.old_text ?? "", block.new_text ?? "", block.old_start ?? 1, block.new_start ?? 1);
  const language = findLanguage(block.path ?? "");
  const shown = whole ? rows : foldEqual(rows);
  const groups = [];
  for (let at = 0; at < shown.length; at += ROWS_PER_GROUP) {
    const lines = shown.slice(at, at + ROWS_PER_GROUP).map((row) => drawRow(row, language));
    groups.push(el("div", { class: "diff-group" }, lines));
  }
  return el("figure", { class: "diff" }, drawHead(block, rows, whole), el("div", { class: "diff-body", tabindex: "0" }, groups));
}

/** Return "+3 −1" of a change. */
export function drawCounts(rows) {
  const { added, removed } = countChanges(rows);
  return el("span", { class: "counts" },
    added ? el("span", { class: "added" }, `+${added}`) : null, removed ? el("span", { class: "removed" }, `−${removed}`) : null);
}

function drawHead(block, rows, whole) {
  const path = block.path ?? "";
  return el("figcaption", {}, el("span", { class: "path", title: visible(path) }, txt(whole ? path : relative(path))), drawCounts(rows),
    block.is_summary ? el("span", { class: "faint" }, t("diffSummary")) : null);
}

const NAMES = { "+": "add", "-": "del", " ": "same" };

function drawRow(row, language) {
  if (row.op === "…") return el("div", { class: "diff-row gap" }, t("equalLines", { count: row.count }));
  const mark = row.op === "-" ? "−" : row.op;
  return el("div", { class: `diff-row ${NAMES[row.op]}` },
    el("span", { class: "number", "aria-hidden": "true" }, String(row.new ?? row.old)),
    el("span", { class: "mark" }, mark), el("span", { class: "line" }, drawLine(row, language)));
}

function drawLine(row, language) {
  if (row.from === undefined || row.from >= row.to) return drawTokens(row.text, language);
  const { text, from, to } = row;
  const part = (start, end) => drawTokens(text.slice(start, end), language);
  return [...part(0, from), el("mark", {}, part(from, to)), ...part(to)];
}
