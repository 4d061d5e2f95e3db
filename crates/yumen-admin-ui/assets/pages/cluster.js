// Nodes that share the store, and the objects of Kubernetes.

import { html, useEffect, useState, whileVisible } from "../app/core.js";
import { get } from "../app/api.js";
import { t, number, ago } from "../app/i18n.js";
import { Kubernetes } from "../app/kubernetes.js";
import { Badge, Failure, Figure, Grid, Heading, Loading, Panel } from "../app/widgets.js";

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
    <${Kubernetes} isKubernetes=${view.store === "kubernetes"} />`;
}
