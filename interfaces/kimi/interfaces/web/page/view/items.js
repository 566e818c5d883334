// Draws the items of a transcript. Each function returns `{node, update()}`.

import { oneLine } from "../model/visible.js";
import { formatSeconds } from "../model/format.js";
import { hasText, t } from "../texts.js";
import { el, isPicture, link, txt } from "./dom.js";
import { drawMarkdown } from "./markdown_view.js";
import { drawTool } from "./tool_view.js";

/** Return the view of an item. */
export function drawItem(item) {
  const view = beginItem(item);
  const { node, update } = view;
  view.update = () => {
    try {
      if (item.dropped) node.hidden = true;
      else update();
    } catch (error) {
      console.error(error);
      node.replaceChildren(el(node.localName === "details" ? "summary" : "p", { class: "note error" }, t("notShown")));
    }
  };
  view.update();
  return view;
}

// What tools of other programs give back may have any shape: what cannot be drawn says so, and the rest is drawn.
function beginItem(item) {
  try {
    return (DRAWN[item.kind] ?? drawNote)(item);
  } catch (error) {
    return { node: el("div"), update() { throw error; } };
  }
}

/** Return about how high an item will be, in pixels. */
export function estimateHeight(item) {
  if (item.kind === "text") return 20 + 24 * Math.ceil(item.chunk.text.length / 80);
  if (item.kind === "user") return 56 + 24 * Math.floor(item.text.length / 80);
  return item.dropped ? 0 : 34;
}

const DRAWN = {
  user: drawUser, text: drawText, think: drawThinking, plan: drawPlan, media: drawMediaItem, btw: drawBtw,
  tool: (item) => drawTool(item, drawItem),
};

function drawUser(item) {
  const label = item.steer ? t("steered") : item.nested ? t("nestedTurn") : "";
  const node = el("div", { class: `user${item.nested ? " nested" : ""}`, dir: "auto" },
    el("h2", { class: "unseen" }, t("you")),
    label ? el("span", { class: "label" }, label) : null,
    el("div", { class: "said" }, txt(item.text)), drawMedia(item.media));
  return { node, update() {} };
}

function drawText(item) {
  const node = el("div", { class: item.chunk.joined || item.chunk.fence ? "md joined" : "md" });
  let drawn = -1;
  return {
    node,
    update() {
      if (item.chunk.text.length === drawn) return;
      drawn = item.chunk.text.length;
      node.replaceChildren(...drawMarkdown(item.chunk.text, item.chunk.fence));
    },
  };
}

function drawThinking(item) {
  const summary = el("summary");
  const body = el("div", { class: "thoughts", dir: "auto" });
  const node = el("details", { class: "think" }, summary, body);
  let shown = 0;
  const fill = () => {
    if (!node.open || shown === item.text.length) return;
    body.append(txt(item.text.slice(shown)));
    shown = item.text.length;
  };
  node.open = item.unfolded ?? false;
  node.addEventListener("toggle", () => ((item.unfolded = node.open), fill()));
  return {
    node,
    update() {
      node.classList.toggle("live", item.open);
      const title = item.open ? t("thinking") : item.seconds ? t("thoughtFor", { time: formatSeconds(item.seconds) }) : t("thought");
      summary.replaceChildren(el("span", {}, title), item.open ? "" : el("span", { class: "faint cut" }, oneLine(item.text, 120)));
      fill();
    },
  };
}

function drawNote(item) {
  const node = el("p", {});
  return {
    node,
    update() {
      node.className = `note ${item.level}`;
      node.replaceChildren(txt(item.key && hasText(item.key) ? t(item.key, item.values) : item.text));
    },
  };
}

function drawPlan(item) {
  const node = el("section", { class: "plan card" },
    el("header", {}, el("strong", {}, t("plan")), el("span", { class: "path faint" }, txt(item.path))),
    el("div", { class: "md" }, drawMarkdown(item.text)));
  return { node, update() {} };
}

function drawBtw(item) {
  const answer = el("div", { class: "md" });
  const node = el("section", { class: "btw card" },
    el("header", {}, el("strong", {}, t("btw")), el("span", {}, txt(item.question))), answer);
  return { node, update: () => answer.replaceChildren(...drawMarkdown(item.text)) };
}

function drawMediaItem(item) {
  return { node: drawMedia([item.media]), update() {} };
}

/** Return pictures, and links to media that are elsewhere. */
export function drawMedia(media) {
  if (!media.length) return null;
  return el("div", { class: "media" }, media.map(({ type, url }) => {
    if (type === "image_url" && isPicture(url)) return el("img", { class: "picture", src: url, alt: t("image"), loading: "lazy" });
    return url.startsWith("data:") ? el("span", { class: "chip" }, txt(url.slice(5, 40).split(/[;,]/, 1)[0])) : link(url, txt(url));
  }));
}
