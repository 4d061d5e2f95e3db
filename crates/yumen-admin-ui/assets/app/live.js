// Rates of the last minutes: one stream of samples while the page is visible.

import { signal, useEffect, whileVisible } from "./core.js";
import { get, isReachable } from "./api.js";

const SAMPLES_MAX = 150;
export const ROW_SAMPLES = 30;

/**
 * @typedef {{ number: number, at_unix_ms: number, seconds: number, by_class: number[], connections: number,
 *   received_bytes: number, sent_bytes: number, cpu_cores: number, memory_bytes: number, p50_us: number | null,
 *   p99_us: number | null }} Sample
 * @typedef {[number, number, number, number | null, number | null, number] | null} RowSample requests, errors, own
 *   responses, median, 99th percentile, time of workers in µs
 * @typedef {{ name: string, total: [number, number, number], samples: RowSample[] }} Row
 * @typedef {{ rps: number, eps: number, p50: number | null, p99: number | null, busyUs: number, requests: number,
 *   series: (number | null)[], total: [number, number, number] }} RowRates
 */

export const samples = signal(/** @type {Sample[]} */ ([]));
export const node = signal(/** @type {{ version: string, revision: number, uptime_ms: number, workers: number } | null} */ (null));

const gap = 15_000;

/** @param {any} body */
function take(body) {
  const known = samples.value;
  const last = known.at(-1);
  const fresh = body.samples.filter((/** @type {Sample} */ one) => !last || one.number > last.number);
  // Numbers that fall mean another process.
  const newest = body.samples.at(-1);
  const isNew = Boolean(last && newest && (newest.number < last.number || newest.at_unix_ms - last.at_unix_ms > gap));
  if (isNew) samples.value = body.samples;
  else if (fresh.length) samples.value = [...known, ...fresh].slice(-SAMPLES_MAX);
  node.value = body;
}

/** Polls the samples of the whole gateway. */
export function useLive() {
  useEffect(
    () =>
      whileVisible(async () => {
        const after = isReachable.value ? (samples.value.at(-1)?.number ?? 0) : 0;
        // The next attempt follows anyway; the shell shows that the gateway cannot be reached.
        await get(`/yumen/v1/live?after=${after}`).then(take, () => {});
      }, samples.value.length ? 2000 : 1000),
    [],
  );
}

/**
 * Polls the rows of a table: rates by id.
 * @param {"routes" | "upstreams" | "plugins" | "consumers"} table
 * @param {string} [id]
 */
export function useRows(table, id) {
  const [rows] = [rowSignal(table, id)];
  useEffect(
    () =>
      whileVisible(async () => {
        const one = id === undefined ? "" : `&id=${encodeURIComponent(id)}`;
        await get(`/yumen/v1/live?rows=${table}${one}`).then((body) => {
          rows.value = ratesOf(body);
        }, () => {});
      }, 2000),
    [table, id],
  );
  return rows.value;
}

/** @type {Map<string, { value: Map<string, RowRates> }>} */
const signals = new Map();
/** @param {string} table @param {string} [id] */
function rowSignal(table, id) {
  const key = `${table}/${id ?? ""}`;
  let known = signals.get(key);
  if (!known) signals.set(key, (known = signal(/** @type {Map<string, RowRates>} */ (new Map()))));
  return known;
}

/** @param {{ samples: Sample[], rows: Record<string, Row> }} body */
function ratesOf(body) {
  /** @type {Map<string, RowRates>} */
  const rates = new Map();
  // The last ten seconds: a single sample of a quiet route flickers between zero and a high rate.
  const recent = body.samples.slice(-5);
  const seconds = recent.reduce((sum, one) => sum + one.seconds, 0) || 1;
  for (const [id, row] of Object.entries(body.rows)) {
    const last = row.samples.slice(-5).filter((one) => one !== null);
    const sum = (/** @type {number} */ at) => last.reduce((total, one) => total + Number(one?.[at] ?? 0), 0);
    const requests = sum(0);
    rates.set(id, {
      requests,
      rps: requests / seconds,
      eps: sum(1) / seconds,
      p50: last.at(-1)?.[3] ?? null,
      p99: last.at(-1)?.[4] ?? null,
      busyUs: sum(5),
      series: row.samples.map((one, at) => (one ? one[0] : 0) / (body.samples[at]?.seconds || 1)),
      total: row.total,
    });
  }
  return rates;
}
