// Puts the page together: the list of sessions, the open one, keys, and what every part may say.

import { createSession, getInfo } from "./api.js";
import { lastPart } from "./model/format.js";
import { preference, setPreference, storeDraft, storeQueue } from "./preferences.js";
import { language, t } from "./texts.js";
import { Conversation } from "./view/conversation.js";
import { showToast } from "./view/dialogs.js";
import { button, el, txt } from "./view/dom.js";
import { chooseDirectory } from "./view/new_session.js";
import { Sessions } from "./view/sessions.js";
import { applyTheme, openSettings } from "./view/settings.js";

let info = { version: "", models: [], default_model: null, directories: [], work_dir: null };

let starts = null;
let startPlaces = "";
const narrow = matchMedia("(max-width: 760px)");
const root = document.getElementById("page");
const spoken = document.getElementById("spoken");
const problem = document.getElementById("problem");

document.documentElement.lang = language() === "zh" ? "zh-Hans" : "en";
applyTheme();

function announce(text) {
  spoken.textContent = "";
  setTimeout(() => spoken.append(txt(text)), 50);
}

function fail(error, quiet = false) {
  const offline = error.code === "offline";
  const texts = { offline: t("offline"), unauthorized: t("unauthorized") };
  if (texts[error.code]) problem.replaceChildren(texts[error.code]);
  problem.hidden = !texts[error.code];
  if (!quiet && !offline) showToast(error.message ? t("changeFailed", { why: error.message }) : t("offline"));
}

function openSession(id) {
  location.hash = `#/s/${id}`;
}

function showSessions(shown = !isShown()) {
  if (narrow.matches) root.classList.toggle("drawer", shown);
  else {
    root.classList.toggle("alone", !shown);
    setPreference("sidebar", shown);
  }
  if (shown && narrow.matches) sessions.node.querySelector(".session-link")?.focus({ preventScroll: true });
}

const isShown = () => (narrow.matches ? root.classList.contains("drawer") : !root.classList.contains("alone"));

async function begin(directory) {
  try {
    openSession(await createSession(directory));
    sessions.refreshSoon(100);
  } catch (error) {
    fail(error);
  }
}

function recentDirectories(count) {
  const known = sessions.sessions.map((one) => one.work_dir);
  return [...new Set([...known, ...(info.work_dir ? [info.work_dir] : [])])].slice(0, count);
}

async function create() {
  const directory = await chooseDirectory(recentDirectories(6), info.work_dir ?? info.directories[0]);
  if (directory) await begin(directory);
}

function welcome() {
  const recent = recentDirectories(4);
  if (starts?.isConnected && startPlaces === String(recent)) return;  // new buttons would take the focus away
  const places = recent.map((one) => button(lastPart(one), () => begin(one), { kind: "chip-button", title: one }));
  startPlaces = String(recent);
  starts = el("div", { class: "starts" }, button(t("newSession"), create, { kind: "primary" }), places,
    button(t("openSessions"), () => showSessions(true), { kind: "phone-only" }));
  conversation.showWelcome(el("p", { class: "lead" }, t("welcome")), el("p", { class: "faint" }, t("welcomeHint")), starts);
}

function listed(found) {
  problem.hidden = true;
  if (!found) return;
  const id = currentId();
  const known = found.find((one) => one.id === id);
  if (known && conversation.session) conversation.showTitle(known.title);
  if (!conversation.session) welcome();
}

const currentId = () => /^#\/s\/([\w-]{1,80})$/.exec(location.hash)?.[1] ?? "";

function route() {
  const id = currentId();
  sessions.select(id);
  if (narrow.matches) root.classList.remove("drawer");
  if (id) conversation.open(id, sessions.sessions.find((one) => one.id === id)?.title ?? "");
  else {
    conversation.showNothing();
    welcome();
  }
}

const conversation = new Conversation({
  info: () => info, fail, complain: showToast, announce, openSessions: () => showSessions(), openSettings: () => openSettings(info.version),
  changed: () => sessions.refreshSoon(150),
});
const sessions = new Sessions({
  open: openSession, create, fail, listed, chosen: () => root.classList.remove("drawer"),
  removed(id) {
    storeDraft(id, "");
    storeQueue(id, []);
    if (id === currentId()) location.hash = "";
  },
});
const shade = el("div", { class: "shade", on: { click: () => showSessions(false) } });
root.replaceChildren(sessions.node, shade, conversation.node);
root.classList.toggle("alone", !preference("sidebar"));

const SHORTCUTS = {
  KeyA: () => conversation.requests.press("approve"),
  KeyS: () => conversation.requests.press("session"),
  KeyR: () => conversation.requests.press("reject"),
  KeyN: create,
  KeyM: () => conversation.status.nextMode(),
  KeyK: () => (isShown() || showSessions(true), sessions.search.focus()),
  KeyI: () => conversation.composer.field.focus(),
  ArrowDown: () => sessions.step(1),
  ArrowUp: () => sessions.step(-1),
};

// On a Mac, Option with a letter types another one, such as å or ą: in a field it means that, and approves nothing.
const onMac = /^(Mac|iP)/.test(navigator.platform);
const writes = (event) => event.code.startsWith("Key") && !event.ctrlKey && event.target.matches("input, textarea");
const isShortcut = (event) =>
  event.altKey && !event.metaKey && (onMac ? !writes(event) : !event.ctrlKey) && Object.hasOwn(SHORTCUTS, event.code);

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]") || event.isComposing) return;
  if (isShortcut(event)) {
    event.preventDefault();
    SHORTCUTS[event.code]();
  } else if (event.key === "Escape" && !event.defaultPrevented && !document.querySelector("[popover]:popover-open")) {
    if (narrow.matches && isShown()) showSessions(false);
    else if (conversation.session?.running) conversation.session.cancel();
  }
});

// Where a keyboard covers the page instead of making it smaller, the page gives way.
window.visualViewport?.addEventListener("resize", () => {
  const covered = window.innerHeight - window.visualViewport.height;
  document.documentElement.style.setProperty("--covered", `${covered > 80 ? covered : 0}px`);
  if (conversation.flow.follow) conversation.flow.toEnd();
});

const skip = document.querySelector(".skip");
skip.textContent = t("message");
skip.addEventListener("click", (event) => {
  event.preventDefault();  // the address names the session
  (conversation.session ? conversation.composer.field : conversation.scroller).focus();
});

window.addEventListener("hashchange", route);
window.addEventListener("pagehide", () => conversation.session?.keepUnsent());
getInfo().then((value) => {
  info = value;
  route();
}, (error) => (fail(error, true), route()));
performance.mark("kimi:started");
