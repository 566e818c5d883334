// The texts of the page in the language that was chosen, or the browser's.

import { preference } from "./preferences.js";
import { ENGLISH } from "./texts_en.js";
import { CHINESE } from "./texts_zh.js";

const TABLES = { en: ENGLISH, zh: CHINESE };

/** Return the language in use: "en" or "zh". */
export function language() {
  const chosen = preference("language");
  if (Object.hasOwn(TABLES, chosen)) return chosen;
  return (navigator.languages ?? [navigator.language]).some((tag) => tag?.toLowerCase().startsWith("zh"))
    && navigator.language?.toLowerCase().startsWith("zh") ? "zh" : "en";
}

/** Return a text; `{name}` in it is replaced by the value of that name. */
export function t(key, values = {}) {
  const table = [TABLES[language()], ENGLISH].find((one) => Object.hasOwn(one, key));
  const text = table ? table[key] : String(key);
  return text.replace(/\{(\w+)\}/g, (whole, name) => (Object.hasOwn(values, name) ? String(values[name]) : whole));
}

/** Whether there is a text of this key. */
export const hasText = (key) => Object.hasOwn(ENGLISH, key);
