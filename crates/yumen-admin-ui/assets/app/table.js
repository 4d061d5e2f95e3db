// A table of many rows: only those in view are in the document.

import { html, useLayoutEffect, useMemo, useRef, useState } from "./core.js";
import { t } from "./i18n.js";
import { Empty } from "./widgets.js";

const ROW_PX = 33;
const AROUND = 5;

/**
 * @template R
 * @typedef {{ key: string, title: any, cell: (row: R) => any, sort?: (row: R) => string | number, class?: string }} Column
 */

/**
 * @template R
 * @param {{ rows: R[], id: (row: R) => string, columns: Column<R>[], label: string, first?: string, empty?: any }} props
 *   `first` is the key of the column that sorts at first; with `-` in front descending.
 */
export function BigTable({ rows, id, columns, label, first = "", empty }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [order, setOrder] = useState(first);
  const sorted = useMemo(() => sort(rows, columns, order), [rows, order]);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const resize = new ResizeObserver(() => setHeight(element.clientHeight));
    resize.observe(element);
    return () => resize.disconnect();
  }, []);
  if (!rows.length) return html`<${Empty}>${empty ?? t("app.nothing")}<//>`;
  const from = Math.max(0, Math.floor(top / ROW_PX) - AROUND);
  const to = Math.min(sorted.length, Math.ceil((top + height) / ROW_PX) + AROUND);
  const gap = (/** @type {number} */ count, /** @type {string} */ key) =>
    count > 0 && html`<tr class="gap" key=${key} aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${count * ROW_PX}px` }}></td></tr>`;
  return html`<div class="big scroll" ref=${box} tabindex="0" role="region" aria-label=${label}
      onScroll=${(/** @type {any} */ event) => setTop(event.currentTarget.scrollTop)} onKeyDown=${move}>
    <table aria-rowcount=${sorted.length + 1}>
      <thead><tr aria-rowindex="1">${columns.map((one) => html`<${Head} key=${one.key} column=${one} order=${order} setOrder=${setOrder} />`)}</tr></thead>
      <tbody>
        ${gap(from, "before")}
        ${sorted.slice(from, to).map((row, at) => html`<tr key=${id(row)} aria-rowindex=${from + at + 2}>
          ${columns.map((one) => html`<td key=${one.key} class=${one.class ?? ""}>${one.cell(row)}</td>`)}
        </tr>`)}
        ${gap(sorted.length - to, "after")}
      </tbody>
    </table>
  </div>`;
}

/** @param {{ column: Column<any>, order: string, setOrder: (order: string) => void }} props */
function Head({ column, order, setOrder }) {
  const { key, title, sort, class: kind } = column;
  if (!sort) return html`<th scope="col" class=${kind ?? ""}>${title}</th>`;
  const direction = order === key ? "ascending" : order === `-${key}` ? "descending" : "none";
  const isNumber = kind === "number";
  // Numbers interest from the highest, names from the first.
  const next = direction === "none" ? (isNumber ? `-${key}` : key) : direction === "ascending" ? `-${key}` : key;
  return html`<th scope="col" class=${kind ?? ""} aria-sort=${direction}>
    <button onClick=${() => setOrder(next)}>${title}<span aria-hidden="true" class="order">${direction === "ascending" ? "↑" : direction === "descending" ? "↓" : ""}</span></button>
  </th>`;
}

/**
 * @template R
 * @param {R[]} rows @param {Column<R>[]} columns @param {string} order
 */
function sort(rows, columns, order) {
  const isDown = order.startsWith("-");
  const by = columns.find((one) => one.key === order.replace("-", ""))?.sort;
  if (!by) return rows;
  const keyed = rows.map((row) => /** @type {[string | number, R]} */ ([by(row), row]));
  keyed.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const sorted = keyed.map(([, row]) => row);
  return isDown ? sorted.reverse() : sorted;
}

/** Arrow keys move between the links of the rows. @param {KeyboardEvent} event */
function move(event) {
  const box = /** @type {HTMLElement} */ (event.currentTarget);
  const links = /** @type {HTMLElement[]} */ ([...box.querySelectorAll("tbody a")].filter((link) => link.closest("td")?.cellIndex === 0));
  const at = links.indexOf(/** @type {any} */ (document.activeElement));
  const page = Math.max(1, Math.floor(box.clientHeight / ROW_PX) - 2);
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page }[event.key];
  if (step === undefined && event.key !== "Home" && event.key !== "End") return;
  event.preventDefault();
  if (event.key === "Home" || event.key === "End") {
    box.scrollTop = event.key === "Home" ? 0 : box.scrollHeight;
    requestAnimationFrame(() => requestAnimationFrame(() => {
      const all = box.querySelectorAll("tbody tr:not(.gap) td:first-child a");
      /** @type {HTMLElement | undefined} */ (all[event.key === "Home" ? 0 : all.length - 1])?.focus();
    }));
    return;
  }
  const next = links[Math.max(0, Math.min(links.length - 1, at + Number(step)))];
  next?.focus({ preventScroll: true });
  // The header covers the first row, which `scrollIntoView` does not take into account.
  const row = next?.closest("tr");
  if (!row) return;
  const offset = row.offsetTop;
  if (offset < box.scrollTop + ROW_PX * 2) box.scrollTop = offset - ROW_PX * 2;
  else if (offset > box.scrollTop + box.clientHeight - ROW_PX * 2) box.scrollTop = offset - box.clientHeight + ROW_PX * 2;
}
