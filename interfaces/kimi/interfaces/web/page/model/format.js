// Figures and times, in the words of the browser's language.

/** Return a count of tokens: 950, 12.3k, 1.2M. */
export function formatTokens(count) {
  if (count < 1000) return String(count);
  if (count < 999_500) return `${trim(count / 1000)}k`;
  return `${trim(count / 1e6)}M`;
}

function trim(value) {
  return value < 100 ? value.toFixed(1).replace(/\.0$/, "") : String(Math.round(value));
}

/** Return a length of time in seconds: 0.4s, 12s, 3m 20s, 2h 5m. */
export function formatSeconds(seconds) {
  if (seconds < 9.95) return `${Math.max(0.1, seconds).toFixed(1)}s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${whole % 60}s`;
  return `${Math.floor(whole / 3600)}h ${Math.floor((whole % 3600) / 60)}m`;
}

/** Return a cost, `{amount, currency}`. */
export function formatCost(cost, language) {
  const digits = cost.amount < 0.1 ? 4 : 2;
  try {
    return new Intl.NumberFormat(language, {
      style: "currency", currency: cost.currency, currencyDisplay: "narrowSymbol", maximumFractionDigits: digits,
    }).format(cost.amount);
  } catch {
    return `${cost.amount.toFixed(digits)} ${cost.currency}`;
  }
}

/** Return how long ago a time was, both in Unix seconds. */
export function formatAgo(at, now, language) {
  const ago = Math.max(0, now - at);
  const form = new Intl.RelativeTimeFormat(language, { style: "narrow", numeric: "auto" });
  if (ago < 60) return form.format(0, "second");
  if (ago < 3600) return form.format(-Math.floor(ago / 60), "minute");
  if (ago < 86400) return form.format(-Math.floor(ago / 3600), "hour");
  if (ago < 7 * 86400) return form.format(-Math.floor(ago / 86400), "day");
  return new Intl.DateTimeFormat(language, { month: "short", day: "numeric", year: ago > 300 * 86400 ? "numeric" : undefined })
    .format(new Date(at * 1000));
}

/** Return the last part of a path. */
export function lastPart(path) {
  return path.split(/[\\/]/).filter(Boolean).at(-1) ?? path;
}
