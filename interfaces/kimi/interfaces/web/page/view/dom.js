// Nodes of the page. Text of others reaches it as text nodes only; no markup is ever parsed.

import { visible } from "../model/visible.js";

const SVG = "http://www.w3.org/2000/svg";
const PATHS = {
  menu: "M4 7h16M4 12h16M4 17h16", plus: "M12 5v14M5 12h14", search: "M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12zm4.5 10.5L20 20",
  send: "M12 19V5M6 11l6-6 6 6", stop: "M7 7h10v10H7z", close: "M6 6l12 12M18 6L6 18",
  more: "M6 11.5h.01v1H6zM12 11.5h.01v1H12zM18 11.5h.01v1H18z", clip: "M20 11.5l-8 8a5 5 0 0 1-7-7l8.5-8.5a3.4 3.4 0 0 1 4.8 4.8l-8.5 8.4a1.7 1.7 0 0 1-2.4-2.4l7.6-7.5",
  check: "M5 12.5l4.5 4.5L19 7.5", cross: "M7 7l10 10M17 7L7 17", copy: "M9 9h10v10H9zM5 15V5h10", folder: "M3.5 7a2 2 0 0 1 2-2h4l2 2.5h7a2 2 0 0 1 2 2V17a2 2 0 0 1-2 2h-13a2 2 0 0 1-2-2z",
  up: "M12 19V6M7 10.5L12 5.5l5 5", down: "M12 5v13M7 13.5l5 5 5-5", gear: "M4 7h9m4 0h3M4 17h3m4 0h9M15 4.5v5M9 14.5v5",
  list: "M9 6h11M9 12h11M9 18h11M4.5 6h.01M4.5 12h.01M4.5 18h.01", server: "M4.5 5h15v5.5h-15zM4.5 13.5h15V19h-15zM8 7.8h.01M8 16.3h.01", clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zm0 4v4.5l3 2",
  fork: "M7 4v5a3 3 0 0 0 3 3h4a3 3 0 0 1 3 3v5M7 9v11",
};

/** Return an element. `props` holds `class`, attributes, `on` with listeners; children are nodes or texts. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "open") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Return a text node with what would hide or reorder text written out. */
export function txt(text) {
  return document.createTextNode(visible(String(text)));
}

let root = "";

/** Show paths below this directory without it from now on. */
export function setRoot(directory) {
  root = directory.replace(/[\\/]$/, "");
}

/** Return a path as it is shown. */
export function relative(path) {
  return root && path.startsWith(root) && /^[\\/]./.test(path.slice(root.length)) ? path.slice(root.length + 1) : path;
}

/** Return an icon. It is decoration: what it stands for is said by the element around it. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** Return a button. `label` is its text or, with an icon, its name for screen readers and its tip. */
export function button(label, listener, { kind = "", picture = "", ...props } = {}) {
  const inside = picture ? icon(picture) : label;
  const named = picture ? { "aria-label": label, title: label } : {};
  return el("button", { type: "button", class: `button ${kind}`, ...named, ...props, on: { click: listener } }, inside);
}

/** Return the address if it may be a link, else null. */
export function safeAddress(url) {
  try {
    const { protocol, href } = new URL(url);
    return ["http:", "https:", "mailto:"].includes(protocol) ? href : null;
  } catch {
    return null;
  }
}

/** Return a link that tells nothing of this page to where it leads; a text if the address may not be a link. */
export function link(url, ...children) {
  const href = safeAddress(url);
  if (!href) return el("span", {}, ...children);
  return el("a", { href, target: "_blank", rel: "noopener noreferrer", title: visible(href) }, ...children);
}

/** Return whether an address is a picture that is contained in itself. */
export function isPicture(url) {
  return /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/.test(url);
}

/** Put a text into the clipboard. Return whether it worked: browsers refuse it to pages without TLS. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { class: "unseen", "aria-hidden": "true", value: text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
