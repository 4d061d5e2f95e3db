// Upstreams in use with the state of their endpoints; stored ones that nothing uses are in the list below.

import { html, useEffect, useState, whileVisible } from "../app/core.js";
import { get, mayWrite } from "../app/api.js";
import { t, rate, duration, number } from "../app/i18n.js";
import { href } from "../app/router.js";
import { useObjects } from "../app/objects.js";
import { useRows } from "../app/live.js";
import { BigTable } from "../app/table.js";
import { EndpointState } from "../app/endpoints.js";
import { Badge, Bar, Failure, Heading, Labels, Loading, ObjectLink, counted } from "../app/widgets.js";

export function Page() {
  const [live, setLive] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [query, setQuery] = useState("");
  const stored = useObjects("upstreams");
  const rates = useRows("upstreams");
  useEffect(() => whileVisible(() => get("/yumen/v1/upstreams").then(setLive, setError), 3000), []);
  if (!live || !stored) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  const rows = merged(live.upstreams, stored.rows).filter((row) => !query || row.text.includes(query.toLowerCase()));
  const rateOf = (/** @type {any} */ row) => rates.get(row.origin) ?? rates.get(row.origin.replace(/^upstreams\//, ""));
  const columns = [
    { key: "origin", title: t("column.origin"), sort: (/** @type {any} */ row) => row.origin, cell: (/** @type {any} */ row) => html`<${ObjectLink} name=${row.origin} />` },
    { key: "name", title: t("column.name"), sort: (/** @type {any} */ row) => row.stored?.name ?? "", cell: (/** @type {any} */ row) => row.stored?.name ?? "" },
    { key: "state", title: t("upstream.endpoints"), sort: (/** @type {any} */ row) => row.share, cell: (/** @type {any} */ row) => row.live ? html`<${Bar} share=${row.share} text=${`${row.ready}/${row.live.endpoints.length}`} />` : html`<${Badge}>${t("upstream.not_in_use")}<//>` },
    { key: "endpoints", title: t("column.address"), cell: (/** @type {any} */ row) => row.live?.endpoints.slice(0, 3).map((/** @type {any} */ one) => html`<span class="pair" key=${one.address}><span class="mono">${one.address}</span> <${EndpointState} endpoint=${one} /></span>`) },
    { key: "balancer", title: t("column.type"), sort: (/** @type {any} */ row) => row.live?.balancer ?? row.stored?.type ?? "", cell: (/** @type {any} */ row) => row.live?.balancer ?? row.stored?.type ?? "" },
    { key: "flight", title: t("upstream.in_flight"), class: "number", sort: (/** @type {any} */ row) => row.flight, cell: (/** @type {any} */ row) => number(row.flight) },
    { key: "idle", title: t("upstream.idle"), class: "number", sort: (/** @type {any} */ row) => row.idle, cell: (/** @type {any} */ row) => number(row.idle) },
    { key: "queue", title: t("upstream.queue"), class: "number", sort: (/** @type {any} */ row) => row.live?.limits?.pending ?? 0, cell: (/** @type {any} */ row) => (row.live?.limits ? number(row.live.limits.pending) : "") },
    { key: "rps", title: t("column.rps"), class: "number", sort: (/** @type {any} */ row) => rateOf(row)?.rps ?? 0, cell: (/** @type {any} */ row) => (rateOf(row) ? rate(rateOf(row)?.rps ?? 0) : "") },
    { key: "p99", title: "p99", class: "number", sort: (/** @type {any} */ row) => rateOf(row)?.p99 ?? 0, cell: (/** @type {any} */ row) => (rateOf(row)?.p99 ? duration(rateOf(row)?.p99) : "") },
    { key: "labels", title: t("column.labels"), cell: (/** @type {any} */ row) => html`<${Labels} labels=${row.stored?.labels} />` },
  ];
  return html`<${Heading} title=${t("kind.upstreams")} sub=${t("about.upstreams")}>
      ${mayWrite() && html`<a class="button primary" href=${href(["upstreams", "new"])}>${t("list.new")}</a>`}
    <//>
    <div class="filter">
      <input type="search" value=${query} onInput=${(/** @type {any} */ event) => setQuery(event.currentTarget.value)} aria-label=${t("list.search")} placeholder=${t("list.search_hint")} />
      <span role="status">${counted(rows.length, "list.count")}${live.total > live.upstreams.length ? ` · ${t("upstream.cut", { total: number(live.total) })}` : ""}</span>
    </div>
    <${BigTable} rows=${rows} id=${(/** @type {any} */ row) => row.origin} columns=${columns} label=${t("kind.upstreams")} empty=${t("list.empty")} />`;
}

/** @param {any[]} live @param {Map<string, any>} stored */
function merged(live, stored) {
  const rows = live.map((one) => {
    const ready = one.endpoints.filter((/** @type {any} */ endpoint) => endpoint.in_rotation).length;
    const sum = (/** @type {string} */ member) => one.endpoints.reduce((/** @type {number} */ all, /** @type {any} */ endpoint) => all + endpoint[member], 0);
    const [flight, idle] = [sum("in_flight"), sum("idle_connections")];
    const object = one.origin.startsWith("upstreams/") ? stored.get(one.origin.slice(10)) : undefined;
    return { origin: one.origin, live: one, stored: object, ready, flight, idle, share: one.endpoints.length ? ready / one.endpoints.length : 0, text: "" };
  });
  const used = new Set(live.map((one) => one.origin));
  for (const [id, object] of stored) {
    if (!used.has(`upstreams/${id}`)) rows.push({ origin: `upstreams/${id}`, live: null, stored: object, ready: 0, flight: 0, idle: 0, share: 2, text: "" });
  }
  for (const row of rows) {
    const addresses = row.live?.endpoints.map((/** @type {any} */ one) => `${one.address} ${one.host}`).join(" ") ?? "";
    row.text = `${row.origin} ${row.stored?.name ?? ""} ${addresses} ${JSON.stringify(row.stored?.labels ?? {})}`.toLowerCase();
  }
  return rows;
}
