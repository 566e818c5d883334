// Language, colours, notifications, and the keys of the page.

import { allowNotifications, canNotify } from "../notify.js";
import { preference, setPreference } from "../preferences.js";
import { t } from "../texts.js";
import { openDialog } from "./dialogs.js";
import { el, txt } from "./dom.js";

const APPLE = /Mac|iP(?:hone|ad)/.test(navigator.platform);
const CONTROL = APPLE ? "⌘" : "Ctrl";
const ALT = APPLE ? "⌥" : "Alt";

const KEYS = [
  ["Enter", "key_send"], ["Shift Enter", "key_line"], [`${CONTROL} Enter`, "key_steer"], ["Esc", "key_stop"], [`${ALT} A`, "key_approve"],
  [`${ALT} S`, "key_session"], [`${ALT} R`, "key_reject"], [`${ALT} M`, "key_mode"], [`${ALT} N`, "key_new"], [`${ALT} K`, "key_search"],
  [`${ALT} I`, "key_input"], [`${ALT} ↓ ↑`, "key_next"],
];

/** Open the settings. `version` is that of the program. */
export function openSettings(version) {
  const problem = el("p", { class: "note warning", role: "alert", hidden: true }, t("notifyRefused"));
  const notifications = el("input", { type: "checkbox", checked: preference("notify"), disabled: !canNotify() });
  notifications.addEventListener("change", async () => {
    const allowed = !notifications.checked || (await allowNotifications());
    notifications.checked = notifications.checked && allowed;
    problem.hidden = allowed;
    setPreference("notify", notifications.checked);
  });
  problem.hidden = canNotify();
  openDialog(t("settings"),
    el("div", { class: "settings" },
      drawChoice("language", t("language"), [["auto", t("auto")], ["en", "English"], ["zh", "中文"]], () => location.reload()),
      drawChoice("theme", t("theme"), [["auto", t("auto")], ["light", t("light")], ["dark", t("dark")]], applyTheme),
      el("label", { class: "setting" }, el("span", {}, t("notifications"), el("span", { class: "faint" }, t("notifyWhen"))), notifications), problem),
    el("h3", {}, t("keys")),
    el("dl", { class: "keys" }, KEYS.map(([keys, text]) => [
      el("dt", {}, keys.split(" ").map((key) => el("kbd", {}, key))), el("dd", {}, t(text)),
    ])),
    el("p", { class: "faint" }, txt(`kimi ${version}`)));
}

function drawChoice(name, label, choices, changed) {
  const select = el("select", { class: "field" }, choices.map(([value, text]) => el("option", { value }, text)));
  select.value = preference(name);
  select.addEventListener("change", () => {
    setPreference(name, select.value);
    changed();
  });
  return el("label", { class: "setting" }, el("span", {}, label), select);
}

/** Show the colours that were chosen. The server is told of them by a cookie: the first paint has them already. */
export function applyTheme() {
  const theme = preference("theme");
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.cookie = `kimi_theme=${theme}; path=/; samesite=strict; max-age=${theme === "auto" ? 0 : 31_536_000}`;
}
