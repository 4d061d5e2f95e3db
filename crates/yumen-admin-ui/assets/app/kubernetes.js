// Objects of Kubernetes: the resources that the controller made of each of them, and their problems.

import { html, useEffect, useMemo, useState, whileVisible } from "./core.js";
import { get } from "./api.js";
import { t, number } from "./i18n.js";
import { KINDS, matchText, originOf } from "./kinds.js";
import { useObjects } from "./objects.js";
import { href, place, setQuery } from "./router.js";
import { BigTable } from "./table.js";
import { Badge, Empty, Grid, ObjectLink, Panel, counted } from "./widgets.js";

const TRANSLATED = ["routes", "services", "upstreams", "stream_routes", "ssls", "listeners", "scopes", "plugin_configs", "global_rules"];

/**
 * @typedef {{ name: string, kind: string, namespace: string, own: string, objects: { name: string, kind: string, row: any }[], problems: any[], text: string }} KubernetesObject
 * `name` is `Ingress/shop/web`; objects without a namespace have two parts.
 */

/** @param {string} name @returns {KubernetesObject} */
function described(name) {
  const [kind = "", ...rest] = name.split("/");
  const own = rest.pop() ?? "";
  return { name, kind, namespace: rest.join("/"), own, objects: [], problems: [], text: "" };
}

/** @param {{ name: string, kind: string, row: any }[]} translated @param {any[]} problems */
function grouped(translated, problems) {
  /** @type {Map<string, KubernetesObject>} */
  const all = new Map();
  const at = (/** @type {string} */ name) => {
    let one = all.get(name);
    if (!one) all.set(name, (one = described(name)));
    return one;
  };
  /** @type {Map<string, string>} */
  const origins = new Map();
  for (const object of translated) {
    const origin = String(originOf(object.row));
    origins.set(object.name, origin);
    at(origin).objects.push(object);
  }
  for (const problem of problems) {
    // A problem of a resource is one of the object that it comes from.
    const name = /^[A-Z]\w*\//.test(problem.object) ? problem.object : origins.get(problem.object);
    if (name) at(name).problems.push(problem);
  }
  for (const one of all.values()) one.text = `${one.name} ${one.objects.map((object) => `${object.name} ${matchText(object.row)}`).join(" ")}`.toLowerCase();
  return [...all.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** @param {{ isKubernetes: boolean }} props */
export function Kubernetes({ isKubernetes }) {
  const tables = TRANSLATED.map((kind) => ({ kind, table: useObjects(kind, 5000) }));
  const [problems, setProblems] = useState(/** @type {any[]} */ ([]));
  useEffect(() => whileVisible(() => get("/yumen/v1/problems").then(setProblems, () => {}), 5000), []);
  const all = useMemo(() => {
    const translated = tables.flatMap(({ kind, table }) => (table?.list ?? []).filter(originOf).map((row) => ({ name: `${kind}/${row.id}`, kind, row })));
    return grouped(translated, problems);
  }, [problems, ...tables.map(({ table }) => table)]);
  const query = place.value.query;
  const [chosen, search] = [query.get("object") ?? "", query.get("q") ?? ""];
  const one = all.find(({ name }) => name === chosen);
  if (!all.length && !isKubernetes && !chosen) return null;
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = all.filter(({ text }) => words.every((word) => text.includes(word)));
  const set = (/** @type {any} */ event) => setQuery({ q: event.currentTarget.value, object: chosen });
  return html`
    ${chosen && html`<${Detail} name=${chosen} one=${one} />`}
    <${Panel} title=${t("cluster.translated")} class="tall"><p class="sub">${t("cluster.read_only")}</p>
      <div class="filter">
        <input type="search" value=${search} onInput=${set} aria-label=${t("list.search")} placeholder=${t("cluster.search_hint")} />
        <span role="status">${words.length ? t("list.found", { found: number(rows.length), total: number(all.length) }) : counted(all.length, "list.count")}</span>
      </div>
      <${BigTable} rows=${rows} id=${(/** @type {any} */ row) => row.name} columns=${columns()} label=${t("cluster.translated")} empty=${words.length ? t("list.none_found") : t("list.empty")} /><//>`;
}

/** @returns {import("./table.js").Column<KubernetesObject>[]} */
const columns = () => [
  { key: "name", title: t("cluster.origin"), sort: (row) => row.name, cell: (row) => html`<${ObjectLink} name=${row.name} />` },
  { key: "kind", title: t("column.kind"), sort: (row) => row.kind, cell: (row) => row.kind },
  { key: "namespace", title: t("cluster.namespace"), sort: (row) => row.namespace, cell: (row) => row.namespace },
  { key: "problems", title: t("figure.problems"), class: "number", sort: (row) => row.problems.length, cell: (row) => (row.problems.length ? html`<${Badge} tone=${toneOf(row.problems)}>${number(row.problems.length)}<//>` : "0") },
  { key: "objects", title: t("cluster.becomes"), sort: (row) => row.objects.length, cell: (row) => html`${summary(row).map(([kind, count]) => html`<span class="label" key=${kind}>${t(`kind.${kind}`)} ${number(count)}</span>`)}` },
];

/** @param {any[]} problems */
const toneOf = (problems) => (problems.some((one) => one.level === "error") ? "bad" : "warn");

/** The number of resources by kind. @param {KubernetesObject} row @returns {[string, number][]} */
const summary = (row) => Object.keys(KINDS).map((kind) => /** @type {[string, number]} */ ([kind, row.objects.filter((object) => object.kind === kind).length])).filter(([, count]) => count > 0);

/** One object of Kubernetes. @param {{ name: string, one: KubernetesObject | undefined }} props */
function Detail({ name, one }) {
  const close = html`<a href=${href(["cluster"])}>${t("app.close")}</a>`;
  return html`<${Panel} title=${html`<span class="mono">${name}</span>`} actions=${close}>
    ${!one && html`<${Empty}>${t("cluster.unknown")}<//>`}
    ${one && one.problems.length > 0 && html`<ul class="problems">${one.problems.map((problem) => html`<li key=${problem.object + problem.path + problem.message}>
      <${Badge} tone=${problem.level === "error" ? "bad" : "warn"}>${t(`level.${problem.level}`)}<//>
      <div>${problem.object === name ? "" : html`<${ObjectLink} name=${problem.object} /> `}${problem.path && html`<code>${problem.path}</code> `}${problem.message}${problem.allowed || problem.hint ? html`<p class="hint">${[problem.allowed, problem.hint].filter(Boolean).join("; ")}</p>` : ""}</div>
    </li>`)}</ul>`}
    ${one && html`<${Grid} label=${t("cluster.becomes")} empty=${t("cluster.nothing")} head=${[t("column.object"), t("column.kind"), t("column.match")]}
      rows=${one.objects.map(({ name: object, kind, row }) => [html`<${ObjectLink} name=${object} />`, t(`kind.${kind}`), html`<span class="mono">${matchText(row) || (row.snis ?? []).join(" ") || row.address || ""}</span>`])} />`}
  <//>`;
}
