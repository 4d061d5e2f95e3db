// Objects of each kind in short form, kept current by the changes since the last revision.

import { signal, useEffect, whileVisible } from "./core.js";
import { get } from "./api.js";

/** @typedef {Record<string, any> & { id: string }} ObjectRow */
/** @typedef {{ revision: number, rows: Map<string, ObjectRow>, error?: any, list: ObjectRow[] }} ObjectTable */

/** @type {Map<string, { value: ObjectTable | null }>} */
const tables = new Map();

/** @param {string} kind */
function tableOf(kind) {
  let table = tables.get(kind);
  if (!table) tables.set(kind, (table = signal(/** @type {ObjectTable | null} */ (null))));
  return table;
}

/** @param {string} kind */
export async function refresh(kind) {
  const table = tableOf(kind);
  const known = table.value;
  const since = known && known.revision > 0 ? `?since=${known.revision}` : "";
  try {
    const body = await get(`/yumen/v1/objects/${kind}${since}`);
    if (known && !known.error && !body.is_whole && !body.rows.length && !body.deleted.length) {
      known.revision = body.revision;
      return;
    }
    const rows = body.is_whole || !known ? new Map() : new Map(known.rows);
    for (const row of body.rows) rows.set(row.id, row);
    for (const id of body.deleted) rows.delete(id);
    table.value = { revision: body.revision, rows, list: [...rows.values()] };
  } catch (error) {
    table.value = { revision: known?.revision ?? 0, rows: known?.rows ?? new Map(), list: known?.list ?? [], error };
  }
}

/** Forgets all objects: another client may see other things. */
export const forgetObjects = () => tables.forEach((table) => (table.value = null));

/** @param {string} kind @param {number} [intervalMs] */
export function useObjects(kind, intervalMs = 3000) {
  useEffect(() => whileVisible(() => refresh(kind), intervalMs), [kind]);
  return tableOf(kind).value;
}
