// A text area for JSON with line numbers and the place of an error. Tab leaves the field, as everywhere.

import { html, useRef } from "./core.js";

/** @param {{ text: string, change: (text: string) => void, error: { error?: string, at?: number }, label: string, isReadOnly: boolean }} props */
export function TextEditor({ text, change, error, label, isReadOnly }) {
  const gutter = useRef(/** @type {HTMLPreElement | null} */ (null));
  const lines = text.split("\n").length;
  const wrong = error.at === undefined ? -1 : text.slice(0, error.at).split("\n").length - 1;
  const scroll = (/** @type {any} */ event) => {
    if (gutter.current) gutter.current.scrollTop = event.currentTarget.scrollTop;
  };
  const keys = (/** @type {any} */ event) => {
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.isComposing) return;
    const area = event.currentTarget;
    const before = text.slice(0, area.selectionStart);
    const indent = /(^|\n)([ \t]*)[^\n]*$/.exec(before)?.[2] ?? "";
    const more = /[{[]\s*$/.test(before) ? "  " : "";
    if (!indent && !more) return;
    event.preventDefault();
    // As typed, so that it can be undone.
    area.setRangeText(`\n${indent}${more}`, area.selectionStart, area.selectionEnd, "end");
    change(area.value);
  };
  return html`<div class="text-editor">
    <pre ref=${gutter} aria-hidden="true">${Array.from({ length: lines }, (_, at) => html`<span class=${at === wrong ? "wrong" : ""} key=${at}>${at + 1}</span>`)}</pre>
    <textarea aria-label=${label} class="mono" spellcheck="false" autocomplete="off" wrap="off" value=${text} readonly=${isReadOnly}
      aria-invalid=${error.error ? "true" : undefined} onInput=${(/** @type {any} */ event) => change(event.currentTarget.value)} onScroll=${scroll} onKeyDown=${keys}></textarea>
  </div>`;
}
