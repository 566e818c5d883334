// The message: text, pictures, what is queued, and the buttons that send, steer and stop.

import { storedDraft, storeDraft } from "../preferences.js";
import { t } from "../texts.js";
import { Attachments, drawQueued } from "./attachments.js";
import { Completion } from "./completion.js";
import { button, el } from "./dom.js";

const isTouch = () => matchMedia("(pointer: coarse)").matches;

/** The place where a message is written. `session()` returns the open session, `complain(text)` shows a sentence. */
export class Composer {
  constructor(session, complain) {
    this.session = session;
    this.complain = complain;
    this.field = el("textarea", {
      class: "message", rows: "1", "aria-label": t("message"), placeholder: t("placeholder"), enterkeyhint: "enter",
      autocomplete: "off", spellcheck: "true", dir: "auto", id: "message",
    });
    this.list = el("div", { class: "completion", id: "completion" });
    this.completion = new Completion(this.field, this.list, () => session()?.commands ?? [], () => session().id);
    this.thumbs = el("div", { class: "thumbs" });
    this.attachments = new Attachments(this.thumbs, () => this.refresh(), complain);
    this.queue = el("ol", { class: "queue", "aria-label": t("queued") });
    this.picker = el("input", { type: "file", accept: "image/*", multiple: true, hidden: true, on: { change: () => this.pick() } });
    this.sendButton = button(t("send"), () => this.submit(), { kind: "primary round", picture: "send" });
    this.steerButton = button(t("steerIt"), () => this.steer(), { kind: "quiet" });
    this.stopButton = button(t("stop"), () => this.session()?.cancel(), { kind: "round stop", picture: "stop" });
    this.tools = el("div", { class: "tools" },
      button(t("attach"), () => this.picker.click(), { kind: "quiet", picture: "clip" }), this.picker);
    this.node = el("div", { class: "composer" }, this.queue, this.list, this.thumbs, this.field,
      el("div", { class: "composer-row" }, this.tools, el("span", { class: "space" }), this.steerButton, this.stopButton, this.sendButton));
    this.listen();
  }

  listen() {
    this.field.addEventListener("input", () => this.changed());
    this.field.addEventListener("keydown", (event) => this.key(event));
    this.field.addEventListener("paste", (event) => {
      if (this.attachments.add(event.clipboardData.files) && !event.clipboardData.getData("text")) event.preventDefault();
    });
    for (const name of ["dragenter", "dragover"]) {
      document.addEventListener(name, (event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        this.node.classList.add("dropping");
      });
    }
    document.addEventListener("dragleave", (event) => !event.relatedTarget && this.node.classList.remove("dropping"));
    document.addEventListener("drop", (event) => {
      this.node.classList.remove("dropping");
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      if (this.session()) this.attachments.add(event.dataTransfer.files);
    });
  }

  pick() {
    this.attachments.add(this.picker.files);
    this.picker.value = "";
    this.field.focus();
  }

  key(event) {
    if (event.isComposing || event.keyCode === 229 || this.completion.key(event)) return;
    const control = event.ctrlKey || event.metaKey;
    if ((event.key === "s" && control) || (event.key === "Enter" && control)) {
      event.preventDefault();
      this.steer();
    } else if (event.key === "Enter" && !event.shiftKey && !event.altKey && !isTouch()) {
      event.preventDefault();
      this.submit();
    } else if (event.key === "ArrowUp" && !this.field.value && this.session()?.queue.length) {
      event.preventDefault();
      this.takeBack(this.session().queue.length - 1);
    }
  }

  /** Return what is written as the input of a prompt, and clear it; null if there is nothing. */
  take() {
    const text = this.field.value.trim();
    const parts = this.attachments.take();
    if (!text && !parts.length) return null;
    this.fill("");
    this.completion.hide();
    return parts.length ? [...(text ? [{ type: "text", text }] : []), ...parts] : text;
  }

  submit() {
    const input = this.session() && this.take();
    if (input) this.session().submit(input);
  }

  steer() {
    const session = this.session();
    if (!session) return;
    const input = this.take() ?? this.takeQueued(0);
    if (input) session.steer(input);
  }

  takeQueued(at) {
    const session = this.session();
    const [input] = session.queue.splice(at, 1);
    session.keepQueue();
    return input ?? null;
  }

  takeBack(at) {
    this.put(this.takeQueued(at));
  }

  /** Put an input back into the field, before what stands there. */
  put(input) {
    const text = typeof input === "string" ? input : input.filter((part) => part.type === "text").map((part) => part.text).join("\n");
    if (Array.isArray(input)) for (const part of input) if (part.image_url) this.attachments.put(part.image_url.url);
    this.fill([text, this.field.value].filter(Boolean).join("\n"));
    this.field.focus();
  }

  fill(text) {
    this.field.value = text;
    this.changed();
  }

  changed() {
    if (this.session()) storeDraft(this.session().id, this.field.value);
    this.refresh();
  }

  /** Show the draft of the session that was opened. */
  open() {
    this.fill(storedDraft(this.session().id));
    this.attachments.open(this.session().id);
    this.drawQueue();
    if (!isTouch()) this.field.focus();
  }

  drawQueue() {
    const session = this.session();
    const { queue } = session;
    this.queue.hidden = !queue.length;
    this.queue.classList.toggle("held", session.held);
    this.queue.replaceChildren(...queue.map((input, at) => drawQueued(input, {
      send: () => session.steer(this.takeQueued(at)), edit: () => this.takeBack(at), remove: () => this.takeQueued(at),
    })));
  }

  /** Fit the field and the buttons to what is written and whether the agent works. */
  refresh() {
    const session = this.session();
    const busy = Boolean(session?.running);
    const empty = !this.field.value.trim() && !this.attachments.pictures.length;
    const value = this.field.value;
    if (this.fitted !== value) {
      this.fitted = value;
      this.field.style.height = "auto";
      this.field.style.height = `${this.field.scrollHeight}px`;
    }
    this.sendButton.disabled = empty;
    this.sendButton.hidden = busy && empty;
    this.stopButton.hidden = !busy;
    this.steerButton.hidden = !busy || empty;
    const label = t(busy ? "queueIt" : "send");
    this.sendButton.setAttribute("aria-label", label);
    this.sendButton.title = label;
    this.field.placeholder = t(busy ? "placeholderRunning" : "placeholder");
  }
}
