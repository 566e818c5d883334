// Draws a tool call: one line while folded; below it what it changes, what it gave back, and a subagent's work.

import { diffRows } from "../model/diff.js";
import { formatSeconds } from "../model/format.js";
import { callTitle, formatArguments } from "../model/titles.js";
import { readOutput } from "../model/transcript.js";
import { oneLine } from "../model/visible.js";
import { hasText, t } from "../texts.js";
import { button, el, relative, txt } from "./dom.js";
import { drawCounts, drawDiff } from "./diff_view.js";
import { drawMedia } from "./items.js";
import { copyButton, drawTokens } from "./markdown_view.js";

const SHOWN_LINES = 200;
const SHOWN_CHILDREN = 60;
const SHOWN_CHANGE = 24;
const STATES = { running: "running", ok: "done", error: "failed", stopped: "stopped" };

/** Return the view of a call. `drawItem` draws the items of a subagent. */
export function drawTool(item, drawItem) {
  const summary = el("summary");
  const body = el("div", { class: "tool-body" });
  const node = el("details", { class: "tool" }, summary, body);
  let drawn = "";
  let unfolded = false;
  const fill = () => {
    const state = `${item.state} ${item.children?.items.length ?? 0} ${item.state === "running" ? item.args.length : ""}`;
    if (!node.open || (drawn === state && !item.children)) return;
    drawn = state;
    body.replaceChildren(...drawBody(item, drawItem));
  };
  const view = {
    node,
    update() {
      node.className = `tool ${item.asked ? "asked" : item.state}`;
      summary.replaceChildren(...drawHead(item));
      node.open = unfolded = isUnfolded(item);
      fill();
    },
  };
  node.addEventListener("toggle", () => {
    if (node.open !== unfolded) item.unfolded = node.open;
    view.update();
  });
  return view;
}

/** Return what a tool is called for people. */
export function toolName(name) {
  const key = `tool_${name}`;
  return hasText(key) ? t(key) : name.replace(/^mcp__/, "").replaceAll("__", " · ");
}

function isUnfolded(item) {
  if (item.unfolded !== null) return item.unfolded;
  const changes = findChanges(item);
  return changes.length > 0 && countRows(changes) <= SHOWN_CHANGE;
}

function countRows(blocks) {
  return blocks.reduce((sum, block) => sum + (block.old_text ?? "").split("\n").length + (block.new_text ?? "").split("\n").length, 0);
}

const findChanges = (item) => (item.result?.display ?? []).filter((block) => block.type === "diff");

function drawHead(item) {
  const state = item.asked ? "asks" : STATES[item.state];
  const name = item.name === "Agent" && item.agent ? `${toolName(item.name)} ${item.agent}` : toolName(item.name);
  const head = [
    el("span", { class: "dot", role: "img", "aria-label": t(state) }),
    el("span", { class: "verb" }, txt(name)), el("span", { class: "title cut" }, txt(relative(item.title))), drawOutcome(item),
  ];
  if (item.children && item.state === "running") head.push(drawProgress(item.children));
  return head;
}

function drawOutcome(item) {
  const parts = [];
  const todo = item.result?.display?.find((block) => block.type === "todo");
  const brief = item.result?.display?.find((block) => block.type === "brief");
  for (const block of findChanges(item).slice(0, 1)) {
    if (countRows([block]) < 4000) parts.push(drawCounts(diffRows(block.old_text ?? "", block.new_text ?? "")));
  }
  if (todo) parts.push(countDone(todo.items));
  else if (item.state === "error") parts.push(txt(oneLine(brief?.text || item.result?.message || "", 60)));
  if (item.seconds >= 1) parts.push(formatSeconds(item.seconds));
  return el("span", { class: "outcome" }, parts);
}

/** Return "2 of 5" of a todo list. */
export function countDone(items) {
  return t("todoCount", { done: items.filter((one) => one.status === "done").length, all: items.length });
}

function drawProgress(children) {
  const calls = children.items.filter((one) => one.kind === "tool");
  const last = calls.at(-1);
  return el("span", { class: "progress cut" }, last ? txt(`${calls.length} · ${toolName(last.name)} ${last.title}`) : "");
}

function drawBody(item, drawItem) {
  const found = [];
  const changes = findChanges(item);
  if (!changes.length && item.name !== "SetTodoList" && showsArguments(item)) found.push(drawArguments(item));
  if (item.children) found.push(drawChildren(item.children, drawItem));
  found.push(...changes.map((block) => drawDiff(block)));
  for (const block of item.result?.display ?? []) {
    if (block.type === "todo") found.push(drawTodo(block.items));
  }
  if (item.result) found.push(...drawResult(item));
  return found;
}

// The title says it all when the one argument that matters fits in it.
function showsArguments(item) {
  if (item.name === "Shell") return true;
  try {
    return Object.keys(JSON.parse(item.args || "{}")).length > 1 || callTitle(item.name, item.args).endsWith("…");
  } catch {
    return item.args !== "";
  }
}

function drawArguments(item) {
  if (item.name !== "Shell") return drawText(formatArguments(item.args), t("arguments"), "json");
  let command = item.title;
  try {
    command = JSON.parse(item.args).command ?? command;
  } catch {
    // still streaming: the title is what is known
  }
  return drawText(command, "", "shell");
}

function drawChildren(children, drawItem) {
  const items = children.items;
  const hidden = Math.max(0, items.length - SHOWN_CHILDREN);
  const box = el("div", { class: "children" });
  const show = (from) => items.slice(from).map((one) => drawItem(one).node);
  if (hidden) {
    const more = button(t("earlier", { count: hidden }), () => box.replaceChildren(...show(0)), { kind: "quiet" });
    box.append(more);
  }
  box.append(...show(hidden));
  return box;
}

/** Return the items of a todo list. */
export function drawTodo(items) {
  return el("ul", { class: "todo" }, items.map((one) => el("li", { class: one.status },
    el("span", { class: "task-state", role: "img", "aria-label": t(one.status) }), el("span", {}, txt(one.title)))));
}

function drawResult(item) {
  const { text, media } = readOutput(item.result);
  const found = [];
  if (findChanges(item).length && !item.result.is_error) return found;
  const whole = text || (item.result.is_error || item.name !== "SetTodoList" ? item.result.message : "");
  if (item.name === "SetTodoList" && !item.result.is_error) return found;
  if (whole) found.push(drawText(whole, "", null, item.result.is_error ? "wrong" : ""));
  else if (!media.length) found.push(el("p", { class: "faint" }, t("noOutput")));
  if (text && item.result.is_error && item.result.message) found.push(drawText(item.result.message, "", null, "wrong"));
  const shown = drawMedia(media);
  return shown ? [...found, shown] : found;
}

/** Return a text as it stands, its first lines if it is long. */
export function drawText(text, title = "", language = null, kind = "") {
  const lines = text.split("\n");
  const code = el("code");
  const fill = (shown) => code.replaceChildren(...drawTokens(shown, language));
  const box = el("div", { class: `output ${kind}` }, title ? el("div", { class: "code-head" }, title) : null,
    el("pre", { tabindex: "0" }, code), el("div", { class: "corner" }, copyButton(() => text)));
  if (lines.length <= SHOWN_LINES) fill(text);
  else {
    fill(lines.slice(0, SHOWN_LINES).join("\n"));
    const more = button(t("showAll", { count: lines.length }), () => (fill(text), more.remove()), { kind: "quiet" });
    box.append(more);
  }
  return box;
}
