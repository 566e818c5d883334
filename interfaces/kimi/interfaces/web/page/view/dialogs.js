// Menus, questions and panels over the page. Escape closes them, and the focus goes back to where it was.

import { t } from "../texts.js";
import { button, el, txt } from "./dom.js";

/** Open a menu below or above `anchor`. An entry is `{label, about, checked, run}`, or null for a line. */
export function openMenu(anchor, entries, label) {
  const choose = (entry) => {
    menu.hidePopover();
    entry.run();
  };
  const menu = el("div", { class: "menu", role: "menu", popover: "auto", "aria-label": label }, entries.map((entry) => (entry
    ? el("button", {
      type: "button", role: entry.checked === undefined ? "menuitem" : "menuitemradio", class: `entry ${entry.kind ?? ""}`,
      "aria-checked": entry.checked === undefined ? null : String(entry.checked), on: { click: () => choose(entry) },
    }, el("span", {}, txt(entry.label)), entry.about ? el("span", { class: "faint" }, txt(entry.about)) : null)
    : el("hr"))));
  menu.addEventListener("toggle", ({ newState }) => {
    if (newState !== "closed") return;
    menu.remove();
    if (document.activeElement === document.body) anchor.focus();
  });
  menu.addEventListener("keydown", (event) => moveFocus(event, menu));
  document.body.append(menu);
  menu.showPopover();
  place(menu, anchor.getBoundingClientRect());
  (menu.querySelector('[aria-checked="true"]') ?? menu.querySelector("button"))?.focus();
}

function place(menu, box) {
  const { offsetWidth: width, offsetHeight: height } = menu;
  const below = box.bottom + 4 + height <= window.innerHeight - 8;
  menu.style.left = `${Math.max(8, Math.min(box.left, window.innerWidth - width - 8))}px`;
  menu.style.top = `${below ? box.bottom + 4 : Math.max(8, box.top - height - 4)}px`;
}

function moveFocus(event, menu) {
  const all = [...menu.querySelectorAll("button")];
  const at = all.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  all[(to + all.length) % all.length].focus();
}

/** Show a dialog and return it. It is removed when it closes. */
export function openDialog(title, ...children) {
  const dialog = el("dialog", { class: "dialog", "aria-labelledby": "dialog-title" },
    el("header", {}, el("h2", { id: "dialog-title" }, txt(title)), button(t("close"), () => dialog.close(), { kind: "quiet", picture: "close" })),
    el("div", { class: "dialog-body" }, children));
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Ask for a text. Resolves to it, or to null. */
export function askText(title, value) {
  return new Promise((resolve) => {
    let answer = null;
    const field = el("input", { class: "field", type: "text", value, "aria-label": title, maxlength: "200" });
    const take = (event) => {
      event.preventDefault();
      answer = field.value.trim() || null;
      dialog.close();
    };
    const dialog = openDialog(title, el("form", { on: { submit: take } }, field, el("div", { class: "answers" },
      button(t("cancelWord"), () => dialog.close(), { kind: "quiet" }), el("button", { type: "submit", class: "button primary" }, t("save")))));
    dialog.addEventListener("close", () => resolve(answer));
    field.select();
  });
}

/** Ask whether to do something that cannot be undone. */
export function confirmDanger(question, word) {
  return new Promise((resolve) => {
    let sure = false;
    const yes = button(word, () => ((sure = true), dialog.close()), { kind: "danger" });
    const dialog = openDialog(word, el("p", {}, txt(question)),
      el("div", { class: "answers" }, button(t("cancelWord"), () => dialog.close(), { kind: "quiet" }), yes));
    dialog.addEventListener("close", () => resolve(sure));
  });
}

/** Show a sentence for a few seconds. It is read aloud. */
export function showToast(text) {
  const host = document.getElementById("toasts");
  const toast = el("div", { class: "toast" }, txt(text));
  host.append(toast);
  setTimeout(() => toast.remove(), 7000);
}
