// Pages by the fragment of the address: `#/routes/r1?tab=plugins`. The gateway serves one document.

import { signal } from "./core.js";

/** @typedef {{ path: string[], query: URLSearchParams }} Place */

/** @returns {Place} */
function read() {
  const text = location.hash.replace(/^#\/?/, "");
  const [path = "", query = ""] = text.split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const place = signal(read());

/** Whether a new page was opened whose title has not got the focus yet. */
export const arrival = { isNew: false };

/** Questions to ask before the page is left; the answer `false` keeps it. */
export const leaveGuard = { ask: /** @type {null | (() => boolean)} */ (null) };

let shown = location.hash;
addEventListener("hashchange", () => {
  if (location.hash === shown) return;
  if (leaveGuard.ask && !leaveGuard.ask()) {
    history.replaceState(null, "", shown || "#/");
    return;
  }
  leaveGuard.ask = null;
  shown = location.hash;
  arrival.isNew = true;
  place.value = read();
});
addEventListener("beforeunload", (event) => {
  if (leaveGuard.ask) event.preventDefault();
});

/**
 * The address of a page.
 * @param {string[]} path
 * @param {Record<string, string | number | null | undefined>} [query]
 */
export function href(path, query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = pairs.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join("&");
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** @param {string} address */
export function go(address) {
  location.hash = address;
}

/** Replaces the current page without a new entry in the browser's history. @param {string} address */
export function replacePage(address) {
  shown = address;
  history.replaceState(null, "", address);
  place.value = read();
}

/**
 * Replaces the query of the current page without a new entry in the browser's history.
 * @param {Record<string, string | number | null | undefined>} query
 */
export function setQuery(query) {
  replacePage(href(place.value.path, query));
}
