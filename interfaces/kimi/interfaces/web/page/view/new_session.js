// Chooses the directory of a new session, among those that the server may open.

import { listDirectories } from "../api.js";
import { lastPart } from "../model/format.js";
import { t } from "../texts.js";
import { openDialog } from "./dialogs.js";
import { button, el, icon, txt } from "./dom.js";

/** Let a directory be chosen. `recent` are paths; resolves to a path, or to null. */
export function chooseDirectory(recent, begin) {
  return new Promise((resolve) => {
    let chosen = null;
    const path = el("p", { class: "path here", "aria-live": "polite" });
    const list = el("div", { class: "directories" });
    const start = button(t("startHere"), () => take(path.dataset.path), { kind: "primary", disabled: true });
    const problem = el("p", { class: "note error", role: "alert", hidden: true });
    const take = (value) => {
      chosen = value;
      dialog.close();
    };
    const go = async (to) => {
      try {
        const found = await listDirectories(to);
        path.dataset.path = found.path;
        path.replaceChildren(txt(found.path));
        list.replaceChildren(...drawDirectories(found, go));
        problem.hidden = true;
        list.scrollTop = 0;
        if (start.disabled) {
          start.disabled = false;
          start.focus();
        }
      } catch (error) {
        problem.hidden = false;
        problem.replaceChildren(txt(t("openFailed", { why: error.message || t("offline") })));
      }
    };
    const known = recent.length ? [el("h3", {}, t("recentDirectories")), el("div", { class: "recent" }, recent.map((one) => (
      button(lastPart(one), () => take(one), { kind: "chip-button", title: one }))))] : [];
    const dialog = openDialog(t("chooseDirectory"), known, el("h3", {}, t("directoryPath")), path, problem, list,
      el("div", { class: "answers" }, button(t("cancelWord"), () => dialog.close(), { kind: "quiet" }), start));
    dialog.addEventListener("close", () => resolve(chosen));
    go(begin);
  });
}

function drawDirectories(found, go) {
  const row = (label, to, up = false) => el("button", { type: "button", class: "directory", on: { click: () => go(to) } },
    icon(up ? "up" : "folder"), el("span", { class: "cut" }, label));
  const separator = found.path.includes("\\") ? "\\" : "/";
  const rows = found.directories.map((name) => row(txt(name), `${found.path.replace(/[\\/]$/, "")}${separator}${name}`));
  if (found.parent !== null) rows.unshift(row(t("parentDirectory"), found.parent, true));
  return rows.length ? rows : [el("p", { class: "faint" }, t("noDirectories"))];
}
