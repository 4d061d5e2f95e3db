// The view library: one import for all modules.

import { h, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { h, render };
export { useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback, useId } from "../vendor/hooks.js";
export { signal, computed, effect, batch } from "../vendor/signals.js";

/** Templates of components: html`<p>${text}</p>`. Text is never markup. */
export const html = htm.bind(h);

/**
 * Calls a function at once and then at an interval while the page is visible. Returns the function that ends it.
 * @param {() => (void | Promise<void>)} run
 * @param {number} intervalMs
 */
export function whileVisible(run, intervalMs) {
  let isOver = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const next = async () => {
    clearTimeout(timer);
    if (isOver || document.hidden) return;
    await run();
    if (!isOver) timer = setTimeout(next, intervalMs);
  };
  document.addEventListener("visibilitychange", next);
  void next();
  return () => {
    isOver = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", next);
  };
}
