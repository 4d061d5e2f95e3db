// A text area for JSON or YAML with line numbers and the line of an error. Tab leaves the field, as everywhere.

import { html, useRef } from "./core.js";

/** @param {{ text: string, change: (text: string) => void, error: { error?: string, line?: number }, label: string, isReadOnly: boolean }} props */
export function TextEditor({ text, change, error, label, isReadOnly }) {
  const gutter = useRef(/** @type {HTMLPreElement | null} */ (null));
  const lines = text.split("\n").length;
  const wrong = (error.line ?? 0) - 1;
  const scroll = (/** @type {any} */ event) => {
    if (gutter.current) gutter.current.scrollTop = event.currentTarget.scrollTop;
  };
  const keys = (/** @type {any} */ event) => {
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.isComposing) return;
    const area = event.currentTarget;
    const before = text.slice(0, area.selectionStart);
    const indent = /(^|\n)([ \t]*)[^\n]*$/.exec(before)?.[2] ?? "";
    const more = /[{[:]\s*$/.test(before) ? "  " : "";
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
