// Nodes that share the store, and the objects that a controller translated from Kubernetes.

import { html, useEffect, useState, whileVisible } from "../app/core.js";
import { get } from "../app/api.js";
import { t, number, ago } from "../app/i18n.js";
import { useObjects } from "../app/objects.js";
import { originOf } from "../app/kinds.js";
import { BigTable } from "../app/table.js";
import { Badge, Failure, Figure, Grid, Heading, Loading, ObjectLink, Panel } from "../app/widgets.js";

const TRANSLATED = ["routes", "services", "upstreams", "stream_routes", "ssls", "listeners", "scopes", "plugin_configs", "global_rules"];

export function Page() {
  const [view, setView] = useState(/** @type {any} */ (null));
  const [applied, setApplied] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  useEffect(() => whileVisible(async () => {
    await Promise.all([get("/yumen/v1/cluster").then(setView, setError), get("/yumen/v1/applied").then(setApplied, () => {})]);
  }, 2000), []);
  if (!view) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  return html`<${Heading} title=${t("nav.cluster")} sub=${t("about.cluster")} />
    <dl class="figures">
      <${Figure} label=${t("cluster.store")} value=${view.store} note=${view.connected ? t("cluster.connected") : t("cluster.disconnected")} tone=${view.connected ? "" : "bad"} />
      <${Figure} label=${t("column.revision")} value=${number(view.revision)} />
      <${Figure} label=${t("figure.nodes")} value=${number(view.nodes.length)} note=${view.behind ? t("cluster.behind_count", { count: view.behind }) : t("cluster.current")} tone=${view.behind ? "warn" : ""} />
      ${applied && html`<${Figure} label=${t("cluster.workers_current")} value=${`${applied.workers_current}/${applied.workers}`} />
      <${Figure} label=${t("cluster.quarantined")} value=${number(applied.quarantined.length)} tone=${applied.quarantined.length ? "bad" : ""} link="#/problems" />`}
    </dl>
    <${Panel} title=${t("figure.nodes")}>
      <${Grid} label=${t("figure.nodes")} numeric=${[2, 3, 6]} head=${[t("column.name"), t("column.state"), t("column.revision"), t("cluster.lag"), t("cluster.seen"), t("cluster.version"), t("figure.problems"), t("cluster.addresses"), t("cluster.started")]}
        rows=${view.nodes.map((/** @type {any} */ one) => [
          html`${one.name}${one.is_self ? html` <${Badge} tone="info">${t("cluster.self")}<//>` : ""}`,
          html`<${Badge} tone=${one.lag_revisions ? "warn" : "good"}>${one.lag_revisions ? t("cluster.behind") : t("cluster.node_current")}<//>${one.config_source === "store" ? "" : html` <${Badge} tone="warn">${t("cluster.last_good")}<//>`}`,
          number(one.applied),
          one.lag_revisions ? `${number(one.lag_revisions)} · ${number(one.lag_ms / 1000, 1)} s` : "0",
          one.is_self ? "" : `${number(one.last_seen_ms / 1000, 1)} s`,
          one.version,
          number(one.problems),
          html`<span class="mono">${Object.entries(one.addresses).map(([name, all]) => `${name} ${/** @type {string[]} */ (all).join(" ")}`).join(" · ")}</span>`,
          ago(one.started_unix_ms),
        ])} />
    <//>
    <${Translated} isKubernetes=${view.store === "kubernetes"} />`;
}

/** @param {{ isKubernetes: boolean }} props */
function Translated({ isKubernetes }) {
  const tables = TRANSLATED.map((kind) => ({ kind, table: useObjects(kind, 5000) }));
  const rows = tables.flatMap(({ kind, table }) => (table?.list ?? []).filter(originOf).map((row) => ({ name: `${kind}/${row.id}`, kind, origin: String(originOf(row)), row })));
  if (!rows.length && !isKubernetes) return null;
  const columns = [
    { key: "name", title: t("column.object"), sort: (/** @type {any} */ one) => one.name, cell: (/** @type {any} */ one) => html`<${ObjectLink} name=${one.name} />` },
    { key: "kind", title: t("column.kind"), sort: (/** @type {any} */ one) => one.kind, cell: (/** @type {any} */ one) => t(`kind.${one.kind}`) },
    { key: "origin", title: t("cluster.origin"), sort: (/** @type {any} */ one) => one.origin, cell: (/** @type {any} */ one) => html`<span class="mono">${one.origin}</span>` },
  ];
  return html`<${Panel} title=${t("cluster.translated")} class="tall"><p class="sub">${t("cluster.read_only")}</p>
    <${BigTable} rows=${rows} id=${(/** @type {any} */ one) => one.name} columns=${columns} label=${t("cluster.translated")} /><//>`;
}
