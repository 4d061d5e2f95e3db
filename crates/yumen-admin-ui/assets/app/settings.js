// What this browser keeps: language, colour scheme, and the token of the session, which is of no use without its cookie.

import { signal } from "./core.js";

/** @param {string} name */
export function stored(name) {
  try {
    return localStorage.getItem(`yumen.${name}`);
  } catch {
    // Storage may be blocked; preferences then last as long as the page.
    return null;
  }
}

/** @param {string} name @param {string} value */
export function store(name, value) {
  try {
    localStorage.setItem(`yumen.${name}`, value);
  } catch {
    // As above.
  }
}

/** @typedef {"auto" | "light" | "dark"} Scheme */
export const scheme = signal(/** @type {Scheme} */ (stored("scheme") ?? "auto"));
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

/** Counts changes of the colours, so that charts are drawn anew. */
export const colours = signal(0);

function apply() {
  const isDark = scheme.value === "dark" || (scheme.value === "auto" && systemIsDark.matches);
  document.documentElement.dataset.scheme = isDark ? "dark" : "light";
  colours.value += 1;
}

/** @param {Scheme} to */
export function setScheme(to) {
  scheme.value = to;
  store("scheme", to);
  apply();
}

systemIsDark.addEventListener("change", apply);
apply();
