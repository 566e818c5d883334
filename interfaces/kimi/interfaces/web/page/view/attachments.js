// Pictures that are sent with a message: scaled down to what models look at, as data within the message.

import { t } from "../texts.js";
import { button, el, txt } from "./dom.js";

const LONGEST_SIDE = 2048;
const LARGEST = 3_500_000;

/** The pictures beside the message of each session. `changed()` is told when there are more or fewer. */
export class Attachments {
  constructor(host, changed, complain) {
    Object.assign(this, { host, changed, complain, kept: new Map(), id: "" });
  }

  get pictures() {
    return this.kept.get(this.id) ?? [];
  }

  /** Show the pictures of the session that was opened. */
  open(id) {
    this.id = id;
    this.draw();
  }

  /** Add files as pictures; one that is none is complained of. Return whether there were any files. */
  add(files) {
    const { id } = this;
    for (const file of files) {
      readPicture(file).then((url) => this.put(url, id), () => this.complain(t("tooLarge", { name: file.name || t("image") })));
    }
    return files.length > 0;
  }

  put(url, id = this.id) {
    this.keep([...(this.kept.get(id) ?? []), url], id);
  }

  keep(pictures, id = this.id) {
    if (pictures.length) this.kept.set(id, pictures);
    else this.kept.delete(id);
    this.draw();
  }

  /** Return the pictures as parts of a message, and take them away. */
  take() {
    const parts = this.pictures.map((url) => ({ type: "image_url", image_url: { url } }));
    this.keep([]);
    return parts;
  }

  draw() {
    this.host.hidden = !this.pictures.length;
    this.host.replaceChildren(...this.pictures.map((url, at) => el("figure", { class: "thumb" },
      el("img", { src: url, alt: t("image") }),
      button(`${t("removePicture")} ${at + 1}`, () => this.keep(this.pictures.toSpliced(at, 1)), { kind: "quiet small", picture: "close" }))));
    this.changed();
  }
}

async function readPicture(file) {
  const source = await createImageBitmap(file);
  const scale = Math.min(1, LONGEST_SIDE / Math.max(source.width, source.height));
  if (scale === 1 && file.size < LARGEST && /^image\/(?:png|jpeg|gif|webp)$/.test(file.type)) return readUrl(file);
  const canvas = el("canvas", { width: String(Math.round(source.width * scale)), height: String(Math.round(source.height * scale)) });
  canvas.getContext("2d").drawImage(source, 0, 0, canvas.width, canvas.height);
  const exact = await toBlob(canvas, "image/png");
  return readUrl(exact.size < LARGEST ? exact : await toBlob(canvas, "image/jpeg"));
}

const toBlob = (canvas, type) => new Promise((resolve, reject) => {
  canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), type, 0.88);
});

const readUrl = (blob) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = reject;
  reader.readAsDataURL(blob);
});

/** Return the chip of a message that waits in the queue. */
export function drawQueued(input, listeners) {
  const text = typeof input === "string" ? input : input.filter((part) => part.type === "text").map((part) => part.text).join(" ");
  const count = typeof input === "string" ? 0 : input.filter((part) => part.type !== "text").length;
  return el("li", { class: "queued" }, el("span", { class: "cut" }, txt(text), count ? ` + ${count} ${t("image")}` : ""),
    button(t("sendNow"), listeners.send, { kind: "quiet small", picture: "up" }),
    button(t("editIt"), listeners.edit, { kind: "quiet small" }),
    button(t("remove"), listeners.remove, { kind: "quiet small", picture: "close" }));
}
