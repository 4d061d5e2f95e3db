// One object: settings with their origin, plugins with their cost, traffic, endpoints, problems, history.

import { html, useEffect, useState, whileVisible } from "../app/core.js";
import { call, get, mayWrite, objectPath, reasonField } from "../app/api.js";
import { t, rate, duration, number, time, ago } from "../app/i18n.js";
import { href, go } from "../app/router.js";
import { useRows, samples, ROW_SAMPLES } from "../app/live.js";
import { KINDS, originOf } from "../app/kinds.js";
import { inForce } from "../app/provenance.js";
import { Chart } from "../app/chart.js";
import { Endpoints } from "../app/endpoints.js";
import { ExplainBox } from "../app/explain_box.js";
import { Revisions } from "../app/revisions.js";
import { PlanView } from "../app/plan.js";
import { refresh } from "../app/objects.js";
import { FormChoice, convert, preferredForm, pretty } from "../app/object_text.js";
import { Heading, Panel, Grid, Badge, Labels, Loaded, ObjectLink, Copy, Dialog, Failure, notify, useLoad } from "../app/widgets.js";

/** @param {{ kind: string, id: string }} props */
export function Page({ kind, id }) {
  const of = useLoad(async () => get(objectPath(kind, id)), [kind, id]);
  const [isDeleting, setDeleting] = useState(false);
  const name = kind === "credentials" ? `consumers/${id}` : `${kind}/${id}`;
  const origin = of.data && originOf(of.data.value);
  const actions = mayWrite() && !origin && of.data;
  const title = of.data?.value.name ? `${of.data.value.name}` : id;
  return html`<${Heading} title=${title} sub=${html`<a href=${href([kind])}>${t(`kind.${kind}`)}</a> / <span class="mono">${id}</span>`}>
      ${actions && html`<button onClick=${() => setDeleting(true)}>${t("object.delete")}</button>
        <a class="button primary" href=${href([kind, id, "edit"])}>${t("object.edit")}</a>`}
      ${!actions && of.data && html`<a class="button" href=${href([kind, id, "edit"])}>${t("object.view")}</a>`}
    <//>
    <${Loaded} of=${of}>${(/** @type {any} */ stored) => html`
      ${origin && html`<p class="remark">${t("object.managed")} <${ObjectLink} name=${String(origin)} /></p>`}
      ${stored.value.desc && html`<p class="sub">${stored.value.desc}</p>`}
      <p><${Labels} labels=${stored.value.labels} /></p>
      <${Problems} name=${name} />
      ${(kind === "routes" || kind === "consumers") && html`<${Traffic} table=${kind} id=${id} />`}
      ${kind === "upstreams" && html`<${Panel} title=${t("upstream.endpoints")}><${Endpoints} origin=${name} /><//>`}
      ${kind === "consumers" && html`<${Credentials} username=${id} />`}
      ${["routes", "stream_routes", "services"].includes(kind) ? html`<${InForce} name=${name} value=${stored.value} />` : ""}
      ${kind === "routes" && html`<${Panel} title=${t("nav.explain")}><${ExplainBox} start=${sampleUrl(stored.value)} whyNot=${id} /><//>`}
      ${kind === "routes" && html`<${Recent} id=${id} />`}
      <${AsStored} value=${stored.value} />
      <${Panel} title=${t("nav.history")}><${Revisions} object=${name} limit=${10} /><//>
      ${isDeleting && html`<${Deletion} kind=${kind} id=${id} name=${name} modified=${stored.modifiedIndex} close=${() => setDeleting(false)} />`}`}
    <//>`;
}

/** @param {{ value: any }} props */
function AsStored({ value }) {
  const [form, setForm] = useState(preferredForm());
  const of = useLoad(async () => (form === "yaml" ? convert(pretty(value), form) : pretty(value)), [form, value]);
  const actions = html`<${FormChoice} form=${form} label=${html`<span class="only-read">${t("edit.text")}</span>`} change=${setForm} /><${Copy} text=${of.data ?? ""} />`;
  return html`<${Panel} title=${t("object.as_stored")} actions=${actions}>
    <${Loaded} of=${of}>${(/** @type {string} */ text) => html`<pre class="json" tabindex="0" role="region" aria-label=${t("object.as_stored")}>${text}</pre>`}<//>
  <//>`;
}

/** A URL that the route is likely to match. @param {any} route */
function sampleUrl(route) {
  const host = (route.hosts?.[0] ?? route.host ?? "localhost").replace(/^\*\.?/, "www.");
  const uri = (route.uris?.[0] ?? route.uri ?? "/").replace(/\*.*$/, "").replace(/:(\w+)/g, "$1");
  return { url: `http://${host}${uri.startsWith("/") ? uri : "/"}`, method: route.methods?.[0] ?? "GET" };
}

/** @param {{ name: string }} props */
function Problems({ name }) {
  const { data } = useLoad(() => get("/yumen/v1/problems"), [name]);
  const own = (data ?? []).filter((/** @type {any} */ one) => one.object === name);
  return own.map((/** @type {any} */ one) => html`<div class=${`remark ${one.level === "error" ? "bad" : "warn"}`} key=${one.path + one.message} role="note">
    <${Badge} tone=${one.level === "error" ? "bad" : "warn"}>${t(`level.${one.level}`)}<//> ${one.path && html`<code>${one.path}</code> `}${one.message}${one.allowed || one.hint ? html`<p class="hint">${one.allowed} ${one.hint}</p>` : ""}
  </div>`);
}

/** @param {{ table: "routes" | "consumers", id: string }} props */
function Traffic({ table, id }) {
  const row = useRows(table, id).get(id);
  const all = samples.value.slice(-(row?.series.length ?? ROW_SAMPLES));
  if (!row) return html`<p class="sub">${t("route.no_traffic")}</p>`;
  return html`<div class="columns">
    <${Panel}><${Chart} title=${t("chart.requests")} times=${all.map((one) => one.at_unix_ms)} format=${rate} height=${120}
      series=${[{ label: t("column.rps"), colour: "series-good", values: row.series.slice(-all.length) }]} /><//>
    <${Panel} title=${t("route.now")}><dl class="figures small">
      <div class="figure"><dt>${t("column.rps")}</dt><dd><span class="value">${rate(row.rps)}</span></dd></div>
      <div class=${`figure ${row.eps > 0 ? "bad" : ""}`}><dt>${t("figure.errors")}</dt><dd><span class="value">${rate(row.eps)}</span><span class="note">/s</span></dd></div>
      <div class="figure"><dt>${t("figure.median")}</dt><dd><span class="value">${duration(row.p50)}</span><span class="note">p99 ${duration(row.p99)}</span></dd></div>
      <div class="figure"><dt>${t("route.cost")}</dt><dd><span class="value">${duration(row.requests ? row.busyUs / row.requests : null)}</span></dd></div>
      <div class="figure"><dt>${t("route.total")}</dt><dd><span class="value">${number(row.total[0])}</span></dd></div>
    </dl><//>
  </div>`;
}

/** @param {{ name: string, value: any }} props */
function InForce({ name, value }) {
  const of = useLoad(() => inForce(name, value), [name, value]);
  const costs = useRows("plugins");
  const cost = (/** @type {string} */ plugin) => {
    const [requests, , busyUs] = costs.get(plugin)?.total ?? [0, 0, 0];
    return requests ? duration(busyUs / requests) : "–";
  };
  const own = (/** @type {string} */ origin) => (origin === name ? html`<span class="sub">${t("object.own")}</span>` : html`<${ObjectLink} name=${origin} />`);
  return html`<${Loaded} of=${of}>${(/** @type {any} */ { settings, plugins }) => html`
    <${Panel} title=${t("object.plugins")}>
      <${Grid} label=${t("object.plugins")} empty=${t("object.no_plugins")} numeric=${[2]}
        head=${[t("column.plugin"), t("column.origin"), t("column.cost"), t("column.settings")]}
        rows=${plugins.map((/** @type {any} */ use) => [
          html`<span class="mono">${use.plugin}</span>${use.settings?._meta?.disable ? html` <${Badge}>${t("object.disabled")}<//>` : ""}`,
          html`${own(use.origin)}${use.overridden.length ? html` <span class="sub">${t("object.overrides")} ${use.overridden.map((/** @type {string} */ one) => html`<${ObjectLink} name=${one} />`)}</span>` : ""}`,
          html`<span title=${t("object.cost_note")}>${cost(use.plugin)}</span>`,
          html`<code class="wrap">${JSON.stringify(use.settings)}</code>`,
        ])} />
    <//>
    <${Panel} title=${t("object.settings")}>
      <${Grid} label=${t("object.settings")} head=${[t("column.setting"), t("column.value"), t("column.origin")]}
        rows=${settings.map((/** @type {any} */ one) => [
          html`<span class="mono">${one.name}</span>`,
          one.name.endsWith("_id") ? html`<${ObjectLink} name=${`${one.name === "service_id" ? "services" : one.name === "upstream_id" ? "upstreams" : "plugin_configs"}/${one.value}`} />` : html`<code class="wrap">${typeof one.value === "string" ? one.value : JSON.stringify(one.value)}</code>`,
          own(one.origin),
        ])} />
    <//>`}
  <//>`;
}

/** @param {{ username: string }} props */
function Credentials({ username }) {
  // As in APISIX, an empty list is 404.
  const load = () => get(`/apisix/admin/consumers/${encodeURIComponent(username)}/credentials`).catch((error) => (error.status === 404 ? { list: [] } : Promise.reject(error)));
  const of = useLoad(load, [username]);
  return html`<${Panel} title=${t("kind.credentials")} actions=${mayWrite() && html`<a href=${href(["credentials", "new"], { consumer: username })}>${t("list.new")}</a>`}>
    <${Loaded} of=${of}>${(/** @type {any} */ body) => html`<${Grid} label=${t("kind.credentials")} empty=${t("list.empty")} head=${[t("column.id"), t("column.plugins")]}
      rows=${body.list.map((/** @type {any} */ one) => {
        const id = one.key.split("/credentials/")[1];
        return [html`<a class="mono" href=${href(["credentials", `${username}/credentials/${id}`])}>${id}</a>`, Object.keys(one.value.plugins ?? {}).join(" ")];
      })} />`}<//>
  <//>`;
}

/** Recent requests of a route, where the node lists them. @param {{ id: string }} props */
function Recent({ id }) {
  const [list, setList] = useState(/** @type {any[] | null} */ (null));
  const [isOff, setOff] = useState(false);
  useEffect(
    () =>
      whileVisible(async () => {
        await get("/yumen/v1/recent").then(
          (all) => setList(all.filter((/** @type {any} */ one) => one.route_id === id).slice(0, 20)),
          (error) => setOff(error.status === 404),
        );
      }, isOff ? 60_000 : 4000),
    [id, isOff],
  );
  if (isOff) return html`<${Panel} title=${t("route.recent")}><p class="empty">${t("route.recent_off")} <code>observe.list_recent_requests: true</code></p><//>`;
  return html`<${Panel} title=${t("route.recent")}>
    <${Grid} label=${t("route.recent")} empty=${t("route.no_traffic")} numeric=${[3]} head=${[t("chart.time"), t("explain.method"), "URL", t("column.status"), t("explain.client"), t("explain.consumer"), ""]}
      rows=${(list ?? []).map((one) => [
        html`<time title=${time(one.at_unix_ms)}>${ago(one.at_unix_ms)}</time>`,
        one.method,
        html`<span class="mono">${one.scheme}://${one.host}${one.path}</span>`,
        html`<${Badge} tone=${one.status >= 500 ? "bad" : one.status >= 400 ? "warn" : "good"}>${one.status}<//>`,
        one.client_ip,
        one.consumer ?? "",
        html`<a href=${href(["explain"], { url: `${one.scheme}://${one.host}${one.path}`, method: one.method, client: one.client_ip })}>${t("nav.explain")}</a>`,
      ])} />
  <//>`;
}

/** @param {{ kind: string, id: string, name: string, modified: number, close: () => void }} props */
function Deletion({ kind, id, name, modified, close }) {
  const canPlan = !KINDS[kind]?.noPlan;
  const plan = useLoad(async () => (canPlan ? (await call(`/yumen/v1/plan?delete=${encodeURIComponent(name)}`, { method: "POST", text: "{}" })).data : null), [name]);
  const [reason, setReason] = useState("");
  const [error, setError] = useState(/** @type {any} */ (null));
  const remove = async () => {
    setError(null);
    try {
      await call(`${objectPath(kind, id)}?wait=applied`, { method: "DELETE", headers: { "If-Match": `"${modified}"`, ...reasonField(reason) } });
      notify(t("object.deleted", { name }));
      await refresh(kind);
      go(href([kind]));
    } catch (failed) {
      setError(failed);
    }
  };
  return html`<${Dialog} title=${t("object.delete_title", { name })} close=${close} wide actions=${html`
      <button onClick=${close}>${t("app.cancel")}</button><button class="danger" onClick=${remove}>${t("object.delete")}</button>`}>
    <${Loaded} of=${plan}>${(/** @type {any} */ data) => data && html`<${PlanView} plan=${data} />`}<//>
    <label class="field"><span>${t("history.reason")}</span><input value=${reason} maxlength="500" onInput=${(/** @type {any} */ event) => setReason(event.currentTarget.value)} /></label>
    ${error && html`<${Failure} error=${error} />`}
  <//>`;
}
