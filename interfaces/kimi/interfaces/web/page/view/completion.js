// Completes `/command` at the beginning of a message and `@file` anywhere in it.

import { findFiles } from "../api.js";
import { t } from "../texts.js";
import { el, txt } from "./dom.js";

const SHOWN = 8;
const PAUSE = 90;

/** The list beside a text field. `commands()` returns the slash commands, `session()` the id of the session. */
export class Completion {
  constructor(field, host, commands, session) {
    Object.assign(this, { field, host, commands, session, found: [], chosen: 0, from: 0 });
    host.setAttribute("role", "listbox");
    field.setAttribute("role", "combobox");
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-controls", host.id);
    field.addEventListener("input", () => this.look());
    field.addEventListener("blur", () => setTimeout(() => this.hide(), 150));
    this.hide();
  }

  get open() {
    return !this.host.hidden;
  }

  look() {
    clearTimeout(this.timer);
    const { value, selectionStart: end } = this.field;
    const before = value.slice(0, end);
    const command = /^\s*\/([\w:-]*)$/.exec(before);
    if (command) return this.showCommands(command[1], end - command[1].length - 1);
    const file = /(?:^|\s)@([^\s@]{0,200})$/.exec(before);
    if (!file) return this.hide();
    this.timer = setTimeout(() => this.showFiles(file[1], end - file[1].length - 1), PAUSE);
    return undefined;
  }

  showCommands(word, from) {
    const wanted = word.toLowerCase();
    const matches = (name) => name.toLowerCase().includes(wanted);
    const begins = ({ name }) => (name.toLowerCase().startsWith(wanted) ? 0 : 1);
    const found = this.commands().filter(({ name, aliases }) => matches(name) || aliases.some(matches));
    found.sort((a, b) => begins(a) - begins(b));
    this.show(t("commands"), from, found.slice(0, SHOWN * 4).map(({ name, description }) => ({ text: `/${name}`, about: description })));
  }

  async showFiles(word, from) {
    try {
      const files = await findFiles(this.session(), word);
      if (this.field.value.slice(from, from + 1 + word.length) !== `@${word}`) return;
      this.show(t("files"), from, files.slice(0, SHOWN * 4).map((path) => ({ text: `@${path}`, about: "" })));
    } catch {
      this.hide();
    }
  }

  show(label, from, found) {
    Object.assign(this, { from, found, chosen: 0 });
    if (!found.length) return this.hide();
    this.host.setAttribute("aria-label", label);
    this.host.replaceChildren(...found.map(({ text, about }, at) => el("div", {
      role: "option", id: `option-${at}`, class: "option", on: { pointerdown: (event) => (event.preventDefault(), this.take(at)) },
    }, el("span", { class: "option-text" }, txt(text)), el("span", { class: "faint cut" }, txt(about)))));
    this.host.hidden = false;
    this.field.setAttribute("aria-expanded", "true");
    return this.choose(0);
  }

  choose(at) {
    this.chosen = (at + this.found.length) % this.found.length;
    [...this.host.children].forEach((node, place) => node.setAttribute("aria-selected", String(place === this.chosen)));
    this.field.setAttribute("aria-activedescendant", `option-${this.chosen}`);
    this.host.children[this.chosen].scrollIntoView({ block: "nearest" });
  }

  take(at) {
    const { text } = this.found[at];
    const { value, selectionStart: end } = this.field;
    this.field.setRangeText(`${text}${/^\s/.test(value.slice(end)) ? "" : " "}`, this.from, end, "end");
    this.hide();
    this.field.dispatchEvent(new Event("input"));
    this.field.focus();
  }

  hide() {
    clearTimeout(this.timer);
    this.host.hidden = true;
    this.field.setAttribute("aria-expanded", "false");
    this.field.removeAttribute("aria-activedescendant");
  }

  /** Handle a key. Return whether it was for the list. */
  key(event) {
    if (!this.open) return false;
    const { found, chosen } = this;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") this.choose(chosen + (event.key === "ArrowDown" ? 1 : -1));
    else if (event.key === "Escape") this.hide();
    else if (event.key === "Tab" || (event.key === "Enter" && this.isUnfinished(found[chosen].text))) this.take(chosen);
    else return false;
    event.preventDefault();
    return true;
  }

  // Enter sends a command that stands there already.
  isUnfinished(text) {
    return this.field.value.slice(this.from, this.field.selectionStart) !== text;
  }
}
