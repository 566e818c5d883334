// Draws Markdown: trees of `model/markdown.js` to nodes.

import { findLanguage, highlight } from "../model/highlight.js";
import { parseMarkdown } from "../model/markdown.js";
import { visible } from "../model/visible.js";
import { t } from "../texts.js";
import { button, copyText, el, icon, isPicture, link, txt } from "./dom.js";

/** Return the nodes of a Markdown text. `fence` is the code block in which it begins, if it goes on from elsewhere. */
export function drawMarkdown(text, fence = null) {
  return parseMarkdown(text, fence).map((block, at) => drawBlock(block, fence !== null && at === 0));
}

/** Return the nodes of code in the colours of its language. */
export function drawTokens(code, language) {
  return highlight(visible(code), language).map(([kind, text]) => (kind ? el("span", { class: `hl-${kind}` }, text) : text));
}

function drawBlock(block, goesOn = false) {
  switch (block.t) {
    case "p":
      return el("p", { dir: "auto" }, drawInline(block.c));
    case "h":
      return el(`h${Math.min(block.n + 2, 6)}`, { class: `h${block.n}`, dir: "auto" }, drawInline(block.c));
    case "code":
      return drawCode(block, goesOn);
    case "quote":
      return el("blockquote", {}, block.b.map((inner) => drawBlock(inner)));
    case "list":
      return drawList(block);
    case "table":
      return drawTable(block);
    default:
      return el("hr");
  }
}

function drawCode({ info, text }, goesOn) {
  const language = findLanguage(info);
  const code = el("pre", { tabindex: "0" }, el("code", {}, drawTokens(text, language)));
  const name = info.split(/\s/, 1)[0].slice(0, 40);
  const head = el("div", { class: "code-head" }, txt(name), copyButton(() => text));
  return el("div", { class: goesOn ? "code joined" : "code" }, goesOn ? null : head, code);
}

/** Return a button that copies what `read` returns. */
export function copyButton(read) {
  const copy = button(t("copy"), async () => {
    copy.replaceChildren(icon((await copyText(read())) ? "check" : "cross"));
    setTimeout(() => copy.replaceChildren(icon("copy")), 1500);
  }, { kind: "quiet small", picture: "copy" });
  return copy;
}

function drawList(block) {
  const items = block.items.map(({ task, b }) => {
    const inside = b.map((inner) => (inner.t === "p" && !block.loose ? drawInline(inner.c) : drawBlock(inner))).flat();
    if (task === null) return el("li", { dir: "auto" }, inside);
    const box = el("span", { class: task ? "task done" : "task", role: "img", "aria-label": t(task ? "done" : "open") });
    return el("li", { class: "with-task", dir: "auto" }, box, inside);
  });
  if (!block.ordered) return el("ul", {}, items);
  return el("ol", { start: block.start === 1 ? null : String(block.start) }, items);
}

function drawTable({ align, head, rows }) {
  const row = (tag, cells) => el("tr", {}, cells.map((cell, at) => el(tag, { class: align[at] || null }, drawInline(cell))));
  const body = rows.map((cells) => row("td", cells));
  return el("div", { class: "table", tabindex: "0" }, el("table", {}, el("thead", {}, row("th", head)), el("tbody", {}, body)));
}

const TAGS = { b: "strong", i: "em", s: "del" };

function drawInline(nodes) {
  return nodes.map((node) => {
    if (typeof node === "string") return txt(node);
    if (node.t === "br") return el("br");
    if (node.t === "code") return el("code", {}, txt(node.text));
    if (node.t === "a") return link(node.url, drawInline(node.c));
    if (node.t === "img") return drawPicture(node);
    return el(TAGS[node.t], {}, drawInline(node.c));
  });
}

// A picture from elsewhere would tell its server who reads: it is a link, and a picture within the text is shown.
function drawPicture({ url, c }) {
  const alt = c.map((node) => (typeof node === "string" ? node : "")).join("");
  if (isPicture(url)) return el("img", { class: "picture", src: url, alt: visible(alt) });
  return link(url, txt(`🖼 ${alt || url}`));
}
