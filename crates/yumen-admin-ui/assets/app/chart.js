// Charts of the last minutes, each with a table of the same numbers.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./core.js";
import { colours } from "./settings.js";
import { t, clock } from "./i18n.js";

/** @typedef {{ label: string, colour: string, values: (number | null)[] }} Series */

/** @type {Promise<any> | undefined} */
let library;
/** Loaded with the first chart. */
function load() {
  library ??= import("../vendor/uplot.js").then((module) => module.default);
  return library;
}

/**
 * @param {{ title: string, times: number[], series: Series[], format: (value: number) => string, height?: number, least?: number }} props
 *   times are milliseconds since 1970; the vertical axis reaches `least` at least
 */
export function Chart({ title, times, series, format, height = 150, least = 1 }) {
  const [isTable, setTable] = useState(false);
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  const summary = series.map((one) => `${one.label} ${formatted(one.values.at(-1), format)}`).join(", ");
  return html`<figure class="chart">
    <figcaption>
      <span class="title">${title}</span>
      <span class="legend">${series.map((one) => html`<span key=${one.label}><i class=${`swatch ${one.colour}`}></i>${one.label} <b>${formatted(one.values[at ?? one.values.length - 1], format)}</b></span>`)}${at !== null && times[at] !== undefined && html`<span>${clock(times[at] ?? 0)}</span>`}</span>
      <button class="quiet" aria-pressed=${isTable} onClick=${() => setTable(!isTable)}>${isTable ? t("chart.chart") : t("chart.table")}<span class="only-read"> ${title}</span></button>
    </figcaption>
    ${isTable ? html`<${ChartTable} ...${{ title, times, series, format, height }} />` : html`<${Plot} ...${{ title, times, series, format, height, least, summary, setAt }} />`}
  </figure>`;
}

/** @param {number | null | undefined} value @param {(value: number) => string} format */
const formatted = (value, format) => (value === null || value === undefined ? "–" : format(value));

/** @param {any} props */
function ChartTable({ title, times, series, format, height }) {
  const rows = times.map((/** @type {number} */ at, /** @type {number} */ index) => ({ at, index })).reverse();
  return html`<div class="scroll" style=${{ height: `${height}px` }} tabindex="0" role="region" aria-label=${title}><table>
    <thead><tr><th scope="col">${t("chart.time")}</th>${series.map((/** @type {Series} */ one) => html`<th scope="col" class="number">${one.label}</th>`)}</tr></thead>
    <tbody>${rows.map((/** @type {any} */ { at, index }) => html`<tr key=${at}><td>${clock(at)}</td>${series.map((/** @type {Series} */ one) => html`<td class="number">${formatted(one.values[index], format)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** @param {any} props */
function Plot({ title, times, series, format, height, least, summary, setAt }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const [, setReady] = useState(false);
  const scheme = colours.value;
  useEffect(() => {
    let isOver = false;
    load().then((uPlot) => {
      if (isOver || !box.current) return;
      plot.current = new uPlot(options(box.current, series, format, height, least, setAt), data(times, series), box.current);
      setReady(true);
    });
    const resize = new ResizeObserver(() => box.current && plot.current?.setSize({ width: box.current.clientWidth, height }));
    if (box.current) resize.observe(box.current);
    return () => {
      isOver = true;
      resize.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [scheme, series.length]);
  useLayoutEffect(() => plot.current?.setData(data(times, series)), [times.at(-1), times.length]);
  return html`<div class="plot" ref=${box} style=${{ height: `${height}px` }} role="img" aria-label=${`${title}: ${summary}`}></div>`;
}

/** @param {number[]} times @param {Series[]} series */
const data = (times, series) => [times.map((at) => at / 1000), ...series.map((one) => one.values)];

/** @param {HTMLElement} box @param {Series[]} series @param {(value: number) => string} format @param {number} height @param {number} least @param {(at: number | null) => void} setAt */
function options(box, series, format, height, least, setAt) {
  const style = getComputedStyle(box);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return {
    width: box.clientWidth || 300,
    height,
    padding: [8, 26, 0, 0],
    legend: { show: false },
    hooks: { setCursor: [(/** @type {any} */ plot) => setAt(plot.cursor.idx ?? null)] },
    cursor: { show: true, y: false, points: { size: 5 }, drag: { x: false, y: false } },
    // At least a minute, so that the first samples are no curve of their own.
    scales: { x: { time: true, range: (/** @type {any} */ _, /** @type {number} */ min, /** @type {number} */ max) => [Math.min(min, max - 60), max] }, y: { range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ max) => [0, max > 0 ? Math.max(max * 1.1, least) : least] } },
    axes: [
      { ...axis, size: 22, space: 70, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map((at) => clock(at * 1000)) },
      { ...axis, size: 62, space: 28, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(format) },
    ],
    series: [
      {},
      ...series.map((one) => ({ label: one.label, stroke: colour(one.colour), width: 1.5, fill: series.length === 1 ? colour("fill") : undefined, points: { show: false } })),
    ],
  };
}
