// Tells of what happens while nobody looks: in the title of the page, and by the system if that was allowed.

import { visible } from "./model/visible.js";
import { preference } from "./preferences.js";

let worker = null;

/** Whether this browser can notify here: it needs TLS or a loopback address. */
export const canNotify = () => "Notification" in window && window.isSecureContext;

/** Ask for the permission. Return whether it was given. */
export async function allowNotifications() {
  return canNotify() && (await Notification.requestPermission()) === "granted";
}

/** Say `title` with `body` about a session, if nobody looks at the page. */
export async function notify(session, title, body) {
  if (document.visibilityState === "visible" && document.hasFocus()) return;
  if (!preference("notify") || !canNotify() || Notification.permission !== "granted") return;
  const options = { body, tag: session, data: session, icon: "/page/icon.svg" };
  try {
    worker ??= await startWorker();
    await worker.showNotification(title, options);
  } catch {
    const shown = new Notification(title, options);
    shown.onclick = () => window.focus();
  }
}

async function startWorker() {
  const found = await navigator.serviceWorker.register("/page/sw.js");
  const begun = found.installing ?? found.waiting;
  if (!found.active && begun) {
    await new Promise((resolve) => {
      begun.addEventListener("statechange", () => begun.state === "activated" && resolve());
    });
  }
  return found;
}

/** Put a mark before the page's title: "?" when something is asked, "•" when a turn runs. */
export function showTitle(title, mark) {
  document.title = `${mark ? `${mark} ` : ""}${title ? `${visible(title)} · ` : ""}Kimi`;
}
