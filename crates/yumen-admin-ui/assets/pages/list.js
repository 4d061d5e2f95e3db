// All objects of one kind in a table, with search. Routes have their rates.

import { html, useEffect, useMemo, useState } from "../app/core.js";
import { get, mayWrite } from "../app/api.js";
import { t, rate, duration, number, time, ago } from "../app/i18n.js";
import { href, place, setQuery } from "../app/router.js";
import { useObjects } from "../app/objects.js";
import { useRows } from "../app/live.js";
import { KINDS, matchText, originOf } from "../app/kinds.js";
import { SecretReferences } from "../app/secret_references.js";
import { BigTable } from "../app/table.js";
import { Heading, Badge, Labels, Spark, Failure, Loading, ObjectLink, counted } from "../app/widgets.js";

/** @param {{ kind: string }} props */
export function Page({ kind }) {
  const view = Object.hasOwn(KINDS, kind) ? KINDS[kind] : undefined;
  if (!view) return html`<${Failure} error=${new Error(t("app.no_page"))} />`;
  return html`<${List} kind=${kind} view=${view} />`;
}

/** @param {{ kind: string, view: import("../app/kinds.js").KindView }} props */
function List({ kind, view }) {
  const table = useObjects(kind);
  const [query, setSearch] = useState(place.value.query.get("q") ?? "");
  useEffect(() => setSearch(place.value.query.get("q") ?? ""), [place.value]);
  const facts = useFacts(kind);
  // The kind of a list never changes while it is shown.
  const rates = kind === "routes" || kind === "consumers" ? useRows(kind) : null;
  const rows = useMemo(() => found(table?.list ?? [], query), [table, query]);
  const total = table?.list.length ?? 0;
  const search = (/** @type {any} */ event) => setQuery({ q: event.currentTarget.value });
  const canCreate = mayWrite();
  return html`<${Heading} title=${t(`kind.${kind}`)} sub=${t(`about.${kind}`)}>
      ${canCreate && html`<a class="button primary" href=${href([kind, "new"])} aria-keyshortcuts="n">${t("list.new")}</a>`}
    <//>
    <div class="filter">
      <input type="search" value=${query} onInput=${search} aria-label=${t("list.search")} placeholder=${t("list.search_hint")} />
      <span role="status">${query ? t("list.found", { found: number(rows.length), total: number(total) }) : table ? counted(total, "list.count") : ""}</span>
    </div>
    ${table?.error && html`<${Failure} error=${table.error} />`}
    ${!table ? html`<${Loading} />` : html`<${BigTable} rows=${rows} id=${(/** @type {any} */ row) => row.id} label=${t(`kind.${kind}`)}
        columns=${columns(kind, view.columns, rates, facts)} empty=${query ? t("list.none_found") : t("list.empty")} />`}
    ${kind === "secrets" && html`<${SecretReferences} />`}`;
}

/** Facts about objects of a kind that are not in the objects. @param {string} kind */
function useFacts(kind) {
  const [facts, setFacts] = useState(/** @type {Record<string, any>} */ ({}));
  useEffect(() => {
    if (kind === "ssls") {
      get("/yumen/v1/certificates").then((body) => setFacts(Object.fromEntries(body.certificates.map((/** @type {any} */ one) => [one.id, one]))), () => {});
    } else if (kind === "listeners") {
      get("/yumen/v1/listeners").then(setFacts, () => {});
    }
  }, [kind]);
  return facts;
}

/** Rows with all the words, in any member. @param {any[]} rows @param {string} query */
function found(rows, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  return rows.filter((row) => {
    row.text ??= JSON.stringify(row, (name, value) => (name === "modified" || name === "update_time" ? undefined : value)).toLowerCase() + labelText(row);
    return words.every((word) => row.text.includes(word));
  });
}

/** @param {any} row */
const labelText = (row) => Object.entries(row.labels ?? {}).map(([name, value]) => ` ${name}=${value}`).join("").toLowerCase();

/** @param {string} kind @param {string[]} names @param {Map<string, any> | null} rates @param {Record<string, any>} facts */
function columns(kind, names, rates, facts) {
  const hasNames = !["plugin_metadata", "secrets"].includes(kind);
  /** @type {import("../app/table.js").Column<any>[]} */
  const list = [
    { key: "id", title: t("column.id"), sort: (/** @type {any} */ row) => row.id, cell: (/** @type {any} */ row) => html`<a class="mono" href=${href([kind, row.id])}>${row.id}</a>` },
  ];
  if (hasNames) list.push({ key: "name", title: t("column.name"), sort: (row) => row.name ?? row.desc ?? "", cell: (row) => html`<span title=${row.desc ?? ""}>${row.name ?? row.desc ?? ""}${row.status === 0 ? html` <${Badge} tone="warn">${t("list.off")}<//>` : ""}</span>` });
  if (rates) {
    const of = (/** @type {any} */ row) => rates.get(row.id);
    list.push(
      { key: "rps", title: t("column.rps"), class: "number", sort: (/** @type {any} */ row) => of(row)?.rps ?? 0, cell: (/** @type {any} */ row) => (of(row) ? rate(of(row).rps) : "") },
      { key: "eps", title: t("column.errors"), class: "number", sort: (/** @type {any} */ row) => of(row)?.eps ?? 0, cell: (/** @type {any} */ row) => (of(row)?.eps ? html`<${Badge} tone="bad">${rate(of(row).eps)}<//>` : "") },
      { key: "p99", title: "p99", class: "number", sort: (/** @type {any} */ row) => of(row)?.p99 ?? 0, cell: (/** @type {any} */ row) => (of(row)?.p99 ? duration(of(row).p99) : "") },
      { key: "trend", title: t("column.trend"), cell: (/** @type {any} */ row) => of(row) && html`<${Spark} values=${of(row).series} label=${`${t("column.trend")} ${row.id}`} />` },
    );
  }
  for (const name of names) list.push(column(name, facts));
  list.push({ key: "update_time", title: t("column.changed"), sort: (row) => row.update_time ?? 0, cell: (row) => (row.update_time ? html`<time title=${time(row.update_time * 1000)}>${ago(row.update_time * 1000)}</time>` : "") });
  return list;
}

/** @param {string} name @param {Record<string, any>} facts */
function column(name, facts) {
  /** @type {Record<string, { cell: (row: any) => any, sort?: (row: any) => string | number }>} */
  const special = {
    match: { cell: (row) => html`<span class="mono">${matchText(row)}</span>`, sort: matchText },
    methods: { cell: (row) => (row.methods ?? []).join(" ") },
    hosts: { cell: (row) => html`<span class="mono">${(row.hosts ?? []).join(" ")}</span>` },
    snis: { cell: (row) => html`<span class="mono">${(row.snis ?? [row.sni]).filter(Boolean).join(" ")}</span>` },
    target: { cell: target },
    plugins: { cell: (row) => (row.plugins ?? []).map((/** @type {string} */ plugin) => html`<span class="label" key=${plugin}>${plugin}</span>`) },
    labels: { cell: (row) => html`${originOf(row) && html`<${Badge} tone="info">${t("list.managed")}<//> `}<${Labels} labels=${row.labels} />` },
    expiry: { cell: (row) => expiry(facts[row.id]), sort: (row) => facts[row.id]?.not_after_unix_s ?? 0 },
    state: { cell: (row) => listenerState(facts[row.id]) },
    listeners: { cell: (row) => (row.listeners ?? []).join(" ") },
    nodes: { cell: (row) => (row.service_name ? html`<span class="mono">${row.service_name}</span>` : number(row.nodes ?? 0)), sort: (row) => row.nodes ?? 0 },
  };
  const plain = { cell: (/** @type {any} */ row) => html`<span class="mono">${row[name] ?? ""}</span>`, sort: (/** @type {any} */ row) => row[name] ?? "" };
  return { key: name, title: t(`column.${name}`), ...(special[name] ?? plain) };
}

/** @param {any} row */
function target(row) {
  const parts = [];
  if (row.service_id) parts.push(html`<${ObjectLink} name=${`services/${row.service_id}`} />`);
  if (row.upstream_id) parts.push(html`<${ObjectLink} name=${`upstreams/${row.upstream_id}`} />`);
  if (row.upstream) parts.push(html`<span>${counted(row.upstream.nodes, "list.endpoints")}</span>`);
  return parts;
}

const DAY_MS = 86_400_000;

/** @param {any} fact */
function expiry(fact) {
  if (!fact) return "";
  const end = fact.not_after_unix_s * 1000;
  const days = Math.floor((end - Date.now()) / DAY_MS);
  const tone = days < 0 ? "bad" : days < 21 ? "warn" : "good";
  return html`<${Badge} tone=${tone}>${days < 0 ? t("ssl.expired") : t("ssl.days", { days: number(days) })}<//> <time>${time(end)}</time>`;
}

/** @param {any} fact */
function listenerState(fact) {
  if (!fact) return "";
  const tone = fact.state === "open" ? "good" : fact.state === "failed" ? "bad" : "warn";
  return html`<${Badge} tone=${tone}>${fact.state}<//> <span class="mono">${fact.address ?? fact.reason ?? ""}</span>`;
}
