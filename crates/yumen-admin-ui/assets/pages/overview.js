// The state of this node now: traffic, latency, process, problems, nodes, busiest objects.

import { html, useEffect, useState, whileVisible } from "../app/core.js";
import { get } from "../app/api.js";
import { t, rate, duration, bytes, percent, number, uptime } from "../app/i18n.js";
import { href } from "../app/router.js";
import { samples, node, useRows } from "../app/live.js";
import { Chart } from "../app/chart.js";
import { Heading, Panel, Figure, Grid, Spark, Badge, ObjectLink, Empty } from "../app/widgets.js";

export function Page() {
  const [cluster, setCluster] = useState(/** @type {any} */ (null));
  const [problems, setProblems] = useState(/** @type {any[] | null} */ (null));
  useEffect(
    () =>
      whileVisible(async () => {
        await Promise.all([get("/yumen/v1/cluster").then(setCluster, () => {}), get("/yumen/v1/problems").then(setProblems, () => {})]);
      }, 5000),
    [],
  );
  const own = cluster?.nodes.find((/** @type {any} */ one) => one.is_self);
  return html`<${Heading} title=${t("nav.overview")} sub=${own && `${own.name} · ${t("overview.uptime", { time: uptime(node.value?.uptime_ms ?? 0) })} · ${t("overview.workers", { count: own.workers })}`} />
    <${Figures} problems=${problems} cluster=${cluster} />
    <${Charts} />
    <div class="columns">
      <${Busiest} table="routes" />
      <${Busiest} table="upstreams" />
    </div>
    ${cluster && cluster.nodes.length > 1 && html`<${Nodes} nodes=${cluster.nodes} />`}
    <div class="columns">
      <${Panel} title=${t("nav.problems")} actions=${html`<a href=${href(["problems"])}>${t("app.all")}</a>`}>
        <${ProblemList} problems=${problems} />
      <//>
      <${Plugins} />
    </div>`;
}

const sum = (/** @type {number[]} */ list) => list.reduce((total, one) => total + one, 0);
const rps = (/** @type {any} */ sample) => sum(sample.by_class) / sample.seconds;
const eps = (/** @type {any} */ sample) => (sample.by_class[5] ?? 0) / sample.seconds;

/** @param {{ problems: any[] | null, cluster: any }} props */
function Figures({ problems, cluster }) {
  const last = samples.value.at(-1);
  const errors = problems?.filter((one) => one.level === "error").length ?? 0;
  const behind = cluster?.behind ?? 0;
  const none = "–";
  return html`<dl class="figures">
    <${Figure} label=${t("figure.requests")} value=${last ? rate(rps(last)) : none} note="/s" />
    <${Figure} label=${t("figure.errors")} value=${last ? percent(rps(last) ? eps(last) / rps(last) : 0) : none} note=${last ? `${rate(eps(last))} /s` : ""} tone=${last && eps(last) > 0 ? "bad" : ""} />
    <${Figure} label=${t("figure.median")} value=${duration(last?.p50_us)} note=${last?.p99_us ? `p99 ${duration(last.p99_us)}` : ""} />
    <${Figure} label=${t("figure.connections")} value=${last ? number(last.connections) : none} />
    <${Figure} label=${t("figure.cpu")} value=${last ? number(last.cpu_cores, 2) : none} note=${t("figure.cores")} />
    <${Figure} label=${t("figure.memory")} value=${last ? bytes(last.memory_bytes) : none} />
    <${Figure} label=${t("figure.problems")} value=${problems ? number(problems.length) : none} note=${errors ? t("problems.errors", { count: errors }) : ""} tone=${errors ? "bad" : problems?.length ? "warn" : ""} link=${href(["problems"])} />
    <${Figure} label=${t("figure.nodes")} value=${cluster ? number(cluster.nodes.length) : none} note=${behind ? t("cluster.behind_count", { count: behind }) : cluster ? t("cluster.current") : ""} tone=${behind ? "warn" : ""} link=${href(["cluster"])} />
  </dl>`;
}

function Charts() {
  const all = samples.value;
  const times = all.map((one) => one.at_unix_ms);
  const class_ = (/** @type {number} */ at) => all.map((one) => (one.by_class[at] ?? 0) / one.seconds);
  return html`<div class="charts">
    <${Panel}><${Chart} title=${t("chart.requests")} times=${times} format=${rate} series=${[
      { label: "2xx", colour: "series-good", values: class_(2) },
      { label: "3xx", colour: "series-other", values: class_(3) },
      { label: "4xx", colour: "series-warn", values: class_(4) },
      { label: "5xx", colour: "series-bad", values: class_(5) },
    ]} /><//>
    <${Panel}><${Chart} title=${t("chart.latency")} times=${times} format=${duration} least=${1000} series=${[
      { label: "p50", colour: "series-good", values: all.map((one) => one.p50_us) },
      { label: "p99", colour: "series-warn", values: all.map((one) => one.p99_us) },
    ]} /><//>
    <${Panel}><${Chart} title=${t("chart.bytes")} times=${times} least=${4096} format=${(/** @type {number} */ value) => `${bytes(value)}/s`} series=${[
      { label: t("chart.sent"), colour: "series-good", values: all.map((one) => one.sent_bytes / one.seconds) },
      { label: t("chart.received"), colour: "series-other", values: all.map((one) => one.received_bytes / one.seconds) },
    ]} /><//>
    <${Panel}><${Chart} title=${t("chart.cpu")} times=${times} least=${0.2} format=${(/** @type {number} */ value) => number(value, 2)} series=${[
      { label: t("figure.cores"), colour: "series-good", values: all.map((one) => one.cpu_cores) },
    ]} /><//>
  </div>`;
}

/** @param {{ table: "routes" | "upstreams" }} props */
function Busiest({ table }) {
  const rows = [...useRows(table)].filter(([id, row]) => id !== "*" && row.rps > 0).sort(([, a], [, b]) => b.rps - a.rps).slice(0, 8);
  return html`<${Panel} title=${t(`overview.busiest_${table}`)} actions=${html`<a href=${href([table])}>${t("app.all")}</a>`}>
    <${Grid} label=${t(`overview.busiest_${table}`)} empty=${t("overview.no_traffic")} numeric=${[1, 2, 3]}
      head=${[t("column.name"), t("column.rps"), t("column.errors"), "p99", t("column.trend")]}
      rows=${rows.map(([id, row]) => [
        html`<${ObjectLink} name=${id.includes("/") ? id : `${table}/${id}`} />`,
        rate(row.rps),
        row.eps > 0 ? html`<${Badge} tone="bad">${rate(row.eps)}<//>` : "0",
        duration(row.p99),
        html`<${Spark} values=${row.series} label=${t("column.trend")} />`,
      ])} />
  <//>`;
}

function Plugins() {
  const rows = [...useRows("plugins")].filter(([, row]) => row.requests > 0).sort(([, a], [, b]) => b.busyUs - a.busyUs).slice(0, 8);
  return html`<${Panel} title=${t("overview.plugins")}>
    <${Grid} label=${t("overview.plugins")} empty=${t("overview.no_plugins")} numeric=${[1, 2, 3]}
      head=${[t("column.plugin"), t("column.rps"), t("column.cost"), "p99"]}
      rows=${rows.map(([id, row]) => [html`<span class="mono">${id}</span>`, rate(row.rps), duration(row.requests ? row.busyUs / row.requests : 0), duration(row.p99)])} />
  <//>`;
}

/** @param {{ nodes: any[] }} props */
const Nodes = ({ nodes }) => html`<${Panel} title=${t("figure.nodes")} actions=${html`<a href=${href(["cluster"])}>${t("app.all")}</a>`}>
  <${Grid} label=${t("figure.nodes")} numeric=${[1, 2]} head=${[t("column.name"), t("column.revision"), t("figure.problems"), ""]}
    rows=${nodes.slice(0, 12).map((one) => [one.name, number(one.applied), number(one.problems), one.lag_revisions ? html`<${Badge} tone="warn">${t("cluster.behind_count", { count: number(one.lag_revisions) })}<//>` : ""])} />
<//>`;

/** @param {{ problems: any[] | null }} props */
function ProblemList({ problems }) {
  if (!problems) return null;
  if (!problems.length) return html`<${Empty}>${t("problems.none")}<//>`;
  return html`<ul class="problems">${problems.slice(0, 6).map((one) => html`<li key=${one.object + one.path + one.message}>
    <${Badge} tone=${one.level === "error" ? "bad" : "warn"}>${t(`level.${one.level}`)}<//>
    <div><${ObjectLink} name=${one.object} /> ${one.path && html`<code>${one.path}</code>`}<p>${one.message}</p></div>
  </li>`)}</ul>`;
}
