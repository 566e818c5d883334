// What this browser remembers: language, colours, whether to notify; drafts and queues of sessions.

const DEFAULTS = { language: "auto", theme: "auto", notify: false, sidebar: true };

function read(key, fallback, kept = "localStorage") {
  try {
    return JSON.parse(window[kept].getItem(key)) ?? fallback;
  } catch {
    return fallback;
  }
}

function write(key, value, kept = "localStorage") {
  try {
    if (value === null || value === "" || (Array.isArray(value) && !value.length)) window[kept].removeItem(key);
    else window[kept].setItem(key, JSON.stringify(value));
  } catch {
    // A private window, or pictures that are too large to keep: the page works without.
  }
}

/** Return one of the preferences. */
export function preference(name) {
  return { ...DEFAULTS, ...read("kimi.preferences", {}) }[name];
}

export function setPreference(name, value) {
  write("kimi.preferences", { ...read("kimi.preferences", {}), [name]: value });
}

// A queue is of one tab: two tabs must not both send it.
export const storedQueue = (id) => read(`kimi.queue.${id}`, [], "sessionStorage");
export const storeQueue = (id, queue) => write(`kimi.queue.${id}`, queue, "sessionStorage");
export const storedDraft = (id) => read(`kimi.draft.${id}`, "");
export const storeDraft = (id, text) => write(`kimi.draft.${id}`, text);
