// Language, numbers, times.

import { signal } from "./core.js";
import { stored, store } from "./settings.js";

/** @typedef {Record<string, string>} Catalogue */

export const LANGUAGES = { en: "English", zh: "中文" };
/** @typedef {keyof typeof LANGUAGES} Language */

const preferred = /** @type {Language} */ (
  stored("language") ?? (navigator.languages.some((one) => one.toLowerCase().startsWith("zh")) ? "zh" : "en")
);

export const language = signal(/** @type {Language} */ ("en"));
const catalogue = signal(/** @type {Catalogue} */ ({}));

// The first page needs a part of the texts.
let hasMore = false;

/** Loads the texts of all pages. */
export async function loadMore() {
  if (hasMore) return;
  hasMore = true;
  const more = (await import(`../text/${language.value}_more.js`)).default;
  catalogue.value = { ...catalogue.value, ...more };
}

/** @param {Language} to */
export async function setLanguage(to = preferred) {
  const wanted = to in LANGUAGES ? to : "en";
  const first = (await import(`../text/${wanted}.js`)).default;
  const more = hasMore ? (await import(`../text/${wanted}_more.js`)).default : {};
  catalogue.value = { ...first, ...more };
  language.value = wanted;
  document.documentElement.lang = wanted === "zh" ? "zh-CN" : "en";
  store("language", wanted);
}

/**
 * A text in the current language.
 * @param {string} key
 * @param {Record<string, string | number>} [values] replace `{name}`
 */
export function t(key, values) {
  const text = catalogue.value[key] ?? key;
  return values ? text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? "")) : text;
}

const locale = () => (language.value === "zh" ? "zh-CN" : "en-GB");
/** @type {Map<string, Intl.NumberFormat>} */
const formats = new Map();

/** @param {number} value @param {number} [digits] */
export function number(value, digits = 0) {
  const key = `${locale()} ${digits}`;
  let format = formats.get(key);
  if (!format) formats.set(key, (format = new Intl.NumberFormat(locale(), { maximumFractionDigits: digits })));
  return format.format(value);
}

/** A rate with three significant digits. @param {number} value */
export const rate = (value) => number(value, value === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2);

/** @param {number | null | undefined} us */
export function duration(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1000) return `${number(us)} µs`;
  if (us < 1e6) return `${number(us / 1e3, us < 1e4 ? 1 : 0)} ms`;
  return `${number(us / 1e6, 1)} s`;
}

/** @param {number} value */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${number(value, unit > 0 && value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** @param {number} share */
export const percent = (share) => `${number(share * 100, share > 0 && share < 0.1 ? 2 : share < 1 ? 1 : 0)} %`;

/** Formats of times; making one takes a hundred times as long as its use. @type {Map<string, Intl.DateTimeFormat>} */
const timeFormats = new Map();

/** @param {Intl.DateTimeFormatOptions} options */
function timeFormat(options) {
  const key = `${locale()} ${options.dateStyle ?? ""}`;
  let format = timeFormats.get(key);
  if (!format) timeFormats.set(key, (format = new Intl.DateTimeFormat(locale(), options)));
  return format;
}

/** @param {number} unixMs */
export const time = (unixMs) => timeFormat({ dateStyle: "medium", timeStyle: "medium" }).format(unixMs);

/** @param {number} unixMs */
export const clock = (unixMs) => timeFormat({ timeStyle: "medium" }).format(unixMs);

/** @type {Map<string, Intl.RelativeTimeFormat>} */
const agoFormats = new Map();

/** Time between now and a moment. @param {number} unixMs */
export function ago(unixMs) {
  const seconds = Math.round((unixMs - Date.now()) / 1000);
  let format = agoFormats.get(locale());
  if (!format) agoFormats.set(locale(), (format = new Intl.RelativeTimeFormat(locale(), { numeric: "auto" })));
  /** @type {[number, Intl.RelativeTimeFormatUnit][]} */
  const steps = [[60, "second"], [3600, "minute"], [86400, "hour"], [Infinity, "day"]];
  let divisor = 1;
  for (const [end, unit] of steps) {
    if (Math.abs(seconds) < end) return format.format(Math.round(seconds / divisor), unit);
    divisor = end;
  }
  return "";
}

/** @param {number} ms */
export function uptime(ms) {
  const minutes = Math.floor(ms / 60000);
  const [days, hours] = [Math.floor(minutes / 1440), Math.floor(minutes / 60) % 24];
  if (days) return t("unit.days_hours", { days, hours });
  if (hours) return t("unit.hours_minutes", { hours, minutes: minutes % 60 });
  return t("unit.minutes_seconds", { minutes, seconds: Math.floor(ms / 1000) % 60 });
}
