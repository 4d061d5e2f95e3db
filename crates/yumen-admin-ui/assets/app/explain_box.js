// A question about a request, and the gateway's explanation in the order of its steps.

import { html, useEffect, useRef, useState } from "./core.js";
import { call } from "./api.js";
import { t, number } from "./i18n.js";
import { Badge, Failure, Grid, ObjectLink } from "./widgets.js";
import { EndpointTable } from "./endpoints.js";

/**
 * @typedef {{ url: string, method: string, headers?: string, client_ip?: string, consumer?: string, sni?: string,
 *   listener?: string, why_not?: string, at?: string }} QuestionForm
 */

/** @param {{ start: Partial<QuestionForm>, whyNot?: string, isLong?: boolean, asked?: (form: QuestionForm) => void, isAskedNow?: boolean }} props */
export function ExplainBox({ start, whyNot = "", isLong = false, asked, isAskedNow = false }) {
  const [form, setForm] = useState(/** @type {QuestionForm} */ ({ url: "", method: "GET", why_not: whyNot, ...start }));
  const [result, setResult] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const id = useRef(`explain-${Math.random().toString(36).slice(2)}`).current;
  const ask = async () => {
    if (!form.url) return;
    asked?.(form);
    try {
      setResult((await call(`/yumen/v1/explain${form.at ? `?at=${encodeURIComponent(form.at)}` : ""}`, { method: "POST", body: question(form) })).data);
      setError(null);
    } catch (failed) {
      setError(failed);
    }
  };
  useEffect(() => {
    if (isAskedNow) void ask();
  }, []);
  const field = (/** @type {keyof QuestionForm} */ name, /** @type {any} */ more = {}) => html`<label class=${`field ${more.class ?? ""}`} for=${`${id}-${name}`}><span>${t(`explain.${name}`)}</span>
    ${more.rows ? html`<textarea id=${`${id}-${name}`} rows=${more.rows} spellcheck="false" class="mono" placeholder=${more.placeholder} value=${form[name] ?? ""} onInput=${set(name)}></textarea>` : html`<input id=${`${id}-${name}`} class="mono" placeholder=${more.placeholder} required=${more.required} list=${more.list} value=${form[name] ?? ""} onInput=${set(name)} spellcheck="false" autocomplete="off" />`}
  </label>`;
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setForm({ ...form, [name]: event.currentTarget.value });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    void ask();
  };
  return html`<form class="question" onSubmit=${submit}>
      <datalist id=${`${id}-methods`}>${["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"].map((one) => html`<option key=${one} value=${one} />`)}</datalist>
      <div class="line">
        ${field("method", { class: "method", list: `${id}-methods` })}
        ${field("url", { class: "grow", required: true, placeholder: "http://example.com/path" })}
        <button class="primary">${t("explain.ask")}</button>
      </div>
      ${isLong && html`<div class="line">
        ${field("client_ip", { placeholder: "127.0.0.1" })}${field("consumer")}${field("sni")}${field("listener")}${field("why_not")}${field("at", { placeholder: t("explain.newest") })}
      </div>${field("headers", { rows: 2, placeholder: "Accept: application/json" })}`}
    </form>
    ${error && html`<${Failure} error=${error} />`}
    <div role="status" class="only-read">${result ? summary(result) : ""}</div>
    ${result && (result.stream ? html`<${StreamResult} of=${result} />` : html`<${RequestResult} of=${result} />`)}`;
}

/** @param {QuestionForm} form */
function question(form) {
  const headers = Object.fromEntries((form.headers ?? "").split("\n").map((line) => line.split(/:(.*)/s)).filter(([name, value]) => name?.trim() && value !== undefined).map(([name, value]) => [name?.trim(), value?.trim()]));
  /** @type {Record<string, unknown>} */
  const asked = { url: form.url };
  if (!/^(tcp|udp|tls):/.test(form.url)) asked["method"] = form.method || "GET";
  if (Object.keys(headers).length) asked["headers"] = headers;
  for (const name of /** @type {const} */ (["client_ip", "consumer", "sni", "listener", "why_not"])) {
    if (form[name]) asked[name] = form[name];
  }
  return asked;
}

/** @param {any} result */
const summary = (result) => (result.route ? t("explain.to_route", { route: result.route.id }) : result.stream_route ? t("explain.to_route", { route: result.stream_route.id }) : t("explain.no_route"));

/** @param {{ title: any, tone?: string, children: any }} props */
const Step = ({ title, tone = "", children }) => html`<li class=${tone}><h3>${title}</h3><div>${children}</div></li>`;

/** @param {{ of: any }} props */
function RequestResult({ of }) {
  const { request, route, answer, upstream } = of;
  return html`<ol class="steps">
    <${Step} title=${t("explain.request")}><span class="mono">${request.method} ${request.host}${request.path}</span> <span class="sub">${t("explain.from", { client: request.client_ip })}${request.sni ? ` · SNI ${request.sni}` : ""} · ${t("app.revision", { revision: number(of.revision) })}</span><//>
    <${Scope} scope=${of.scope} certificate=${of.certificate} />
    <${Step} title=${t("explain.route")} tone=${route ? "good" : "bad"}>
      ${route ? html`<${ObjectLink} name=${`routes/${route.id}`} /> ${route.name} <span class="sub">${t("explain.matched")} <code>${route.matched_host}${route.matched_uri}</code>${route.service_id ? html` · <${ObjectLink} name=${`services/${route.service_id}`} />` : ""}${route.origin ? html` · <code>${route.origin}</code>` : ""}${route.priority ? ` · ${t("upstream.priority", { priority: route.priority })}` : ""}</span>` : html`<b>${t("explain.no_route")}</b>`}
      ${of.why_not && of.why_not.why && html`<p class=${`remark ${of.why_not.lost ? "warn" : ""}`}><${ObjectLink} name=${`routes/${of.why_not.route}`} />: ${of.why_not.why}</p>`}
    <//>
    ${of.candidates.length > 0 && html`<${Step} title=${t("explain.others")}>
      <${Grid} label=${t("explain.others")} head=${[t("explain.route"), t("explain.lost"), t("explain.why")]}
        rows=${of.candidates.map((/** @type {any} */ one) => [html`<${ObjectLink} name=${`routes/${one.route}`} />`, html`<${Badge}>${one.lost ?? ""}<//>`, one.why])} />
    <//>`}
    ${of.plugins.length > 0 && html`<${Step} title=${t("object.plugins")}><${PluginSteps} plugins=${of.plugins} />${of.consumer ? html`<p>${t("explain.as_consumer")} <${ObjectLink} name=${`consumers/${of.consumer}`} /></p>` : ""}<//>`}
    ${answer && html`<${Step} title=${t("explain.answer")} tone=${answer.status >= 400 ? "bad" : "good"}>
      <${Badge} tone=${answer.status >= 400 ? "bad" : "good"}>${answer.status}<//> ${answer.plugin ? html`${t("explain.by")} <span class="mono">${answer.plugin}</span> <${ObjectLink} name=${answer.origin ?? ""} />` : t("explain.by_gateway")}
      ${answer.body && html`<pre class="json">${answer.body}</pre>`}
    <//>`}
    ${upstream && html`<${Step} title=${t("explain.upstream")} tone="good">
      <p><${ObjectLink} name=${upstream.origin} /> <span class="mono">${upstream.method} ${upstream.scheme}://${upstream.host ?? "?"}${upstream.path}</span>${upstream.is_rewritten ? html` <${Badge} tone="info">${t("explain.rewritten")}<//>` : ""}</p>
      <${UpstreamFields} upstream=${upstream} />
      <${EndpointTable} upstream=${upstream} isBrief />
    <//>`}
    ${of.remarks.map((/** @type {string} */ one) => html`<${Step} title=${t("explain.remark")} tone="warn" key=${one}>${one}<//>`)}
  </ol>`;
}

/** @param {{ upstream: any }} props */
function UpstreamFields({ upstream }) {
  const rows = [
    ...Object.entries(upstream.headers_set ?? {}).map(([name, value]) => [name, value, t("explain.set")]),
    ...Object.entries(upstream.headers_sent ?? {}).map(([name, value]) => [name, value, t("explain.sent")]),
    ...(upstream.headers_removed ?? []).map((/** @type {string} */ name) => [name, "", t("explain.removed")]),
  ];
  if (!rows.length) return null;
  return html`<details><summary>${t("explain.fields", { count: rows.length })}</summary><${Grid} label=${t("explain.headers")} head=${[t("column.name"), t("column.value"), ""]} rows=${rows.map(([name, value, how]) => [html`<span class="mono">${name}</span>`, html`<span class="mono">${value}</span>`, how])} /></details>`;
}

/** @param {{ scope: any, certificate: any }} props */
const Scope = ({ scope, certificate }) => html`
  ${scope && html`<${Step} title=${t("explain.scope")}><${ObjectLink} name=${`listeners/${scope.listener}`} /> → ${scope.id ? html`<${ObjectLink} name=${`scopes/${scope.id}`} />` : t("explain.no_scope")}<//>`}
  ${certificate && html`<${Step} title=${t("explain.certificate")} tone=${certificate.id ? "" : "warn"}>${certificate.id ? html`<${ObjectLink} name=${`ssls/${certificate.id}`} /> <code>${certificate.matched ?? ""}</code>` : t("explain.own_certificate")}<//>`}`;

/** @param {{ plugins: any[] }} props */
const PluginSteps = ({ plugins }) => html`<${Grid} label=${t("object.plugins")} head=${[t("column.plugin"), t("explain.phase"), t("column.origin"), t("explain.decision"), ""]}
  rows=${plugins.map((one) => [
    html`<span class="mono">${one.plugin}</span>`,
    one.phase,
    html`<${ObjectLink} name=${one.origin} />`,
    html`<${Badge} tone=${one.decision === "answers" ? "warn" : one.decision === "continues" ? "good" : "plain"}>${t(`decision.${one.decision}`)}<//>`,
    one.says ?? "",
  ])} />`;

/** @param {{ of: any }} props */
function StreamResult({ of }) {
  const route = of.stream_route;
  return html`<ol class="steps">
    <${Step} title=${t("explain.stream")}><span class="mono">${of.stream.protocol} ${of.stream.server}</span> <span class="sub">${t("explain.from", { client: of.stream.client_ip })}</span><//>
    <${Scope} scope=${of.scope} certificate=${of.certificate} />
    <${Step} title=${t("explain.route")} tone=${route ? "good" : "bad"}>${route ? html`<${ObjectLink} name=${`stream_routes/${route.id}`} /> <span class="sub">${route.matched.join(", ")}</span>` : html`<b>${t("explain.no_route")}</b>`}<//>
    ${of.candidates.length > 0 && html`<${Step} title=${t("explain.others")}><${Grid} label=${t("explain.others")} head=${[t("explain.route"), t("explain.why")]} rows=${of.candidates.map((/** @type {any} */ one) => [html`<${ObjectLink} name=${`stream_routes/${one.stream_route}`} />`, one.why])} /><//>`}
    ${of.plugins.length > 0 && html`<${Step} title=${t("object.plugins")}><${PluginSteps} plugins=${of.plugins} /><//>`}
    ${of.upstream && html`<${Step} title=${t("explain.upstream")} tone="good"><p><${ObjectLink} name=${of.upstream.origin} /></p><${EndpointTable} upstream=${of.upstream} isBrief /><//>`}
    ${of.remarks.map((/** @type {string} */ one) => html`<${Step} title=${t("explain.remark")} tone="warn" key=${one}>${one}<//>`)}
  </ol>`;
}
