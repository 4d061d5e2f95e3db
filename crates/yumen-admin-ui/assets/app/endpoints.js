// The endpoints of an upstream: health, ejections, load, limits.

import { html, useEffect, useState, whileVisible } from "./core.js";
import { get } from "./api.js";
import { t, number, duration } from "./i18n.js";
import { Badge, Bar, Empty, Failure, Grid, Loading } from "./widgets.js";

/** @param {{ origin: string }} props */
export function Endpoints({ origin }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  useEffect(() => whileVisible(() => get(`/yumen/v1/upstreams?origin=${encodeURIComponent(origin)}`).then(setFound, setError), 2000), [origin]);
  if (!found) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  if (!found.upstreams.length) return html`<${Empty}>${t("upstream.not_in_use")}<//>`;
  return found.upstreams.map((/** @type {any} */ one) => html`<${EndpointTable} key=${one.origin} upstream=${one} />`);
}

/** @param {any} endpoint */
export function EndpointState({ endpoint }) {
  if (endpoint.ejected) return html`<${Badge} tone="bad">${t("upstream.ejected")}<//>`;
  if (endpoint.healthy === false) return html`<${Badge} tone="bad">${t("upstream.unhealthy")}<//>`;
  if (endpoint.weight === 0) return html`<${Badge}>${t("upstream.weight_zero")}<//>`;
  if (!endpoint.in_rotation) return html`<${Badge} tone="warn">${t("upstream.waiting")}<//>`;
  if (endpoint.healthy) return html`<${Badge} tone="good">${t("upstream.healthy")}<//>`;
  return html`<${Badge}>${t("upstream.unchecked")}<//>`;
}

/** @param {{ upstream: any, isBrief?: boolean }} props `isBrief` omits the load */
export function EndpointTable({ upstream, isBrief = false }) {
  const shown = (/** @type {any[]} */ cells) => (isBrief ? cells.slice(0, 3) : cells);
  const total = upstream.endpoints.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.weight, 0) || 1;
  return html`
    <${Grid} label=${`${t("upstream.endpoints")} ${upstream.origin}`} empty=${t("upstream.no_endpoints")} numeric=${[4, 5, 6]}
      head=${shown([t("column.address"), t("column.state"), t("column.weight"), t("upstream.failures"), t("upstream.in_flight"), t("upstream.idle"), t("upstream.latency")])}
      rows=${upstream.endpoints.map((/** @type {any} */ one) => shown([
        html`<span class="mono">${one.address}</span>${one.address.startsWith(one.host) ? "" : html` <span class="sub">${one.host}</span>`}`,
        html`<${EndpointState} endpoint=${one} />`,
        html`<${Bar} share=${one.weight / total} text=${`${one.weight}${one.priority ? ` · ${t("upstream.priority", { priority: one.priority })}` : ""}`} />`,
        one.checks ? failures(one.checks) : html`<span class="sub">${t("upstream.no_checks")}</span>`,
        number(one.in_flight ?? 0),
        number(one.idle_connections ?? 0),
        duration(one.latency_us),
      ]))} />
    ${upstream.unresolved?.length ? html`<p class="remark warn" role="note">${t("upstream.unresolved")} ${upstream.unresolved.map((/** @type {string} */ name) => html`<code>${name}</code> `)}</p>` : ""}
    ${upstream.limits && html`<${Limits} limits=${upstream.limits} />`}`;
}

/** @param {any} checks */
function failures(checks) {
  const parts = [["http", checks.http_failures], ["tcp", checks.tcp_failures], [t("upstream.timeouts"), checks.timeouts]].filter(([, count]) => count > 0);
  return parts.length ? parts.map(([name, count]) => `${name} ${count}`).join(", ") : t("upstream.successes", { count: checks.successes });
}

/** @param {{ limits: any }} props */
function Limits({ limits }) {
  const of = (/** @type {number} */ value, /** @type {number | null} */ most) => (most === null || most === undefined ? number(value) : `${number(value)} / ${number(most)}`);
  /** @type {[string, string, boolean][]} */
  const facts = [
    [t("upstream.in_flight"), of(limits.requests, limits.requests_max), false],
    [t("figure.connections"), of(limits.connections, limits.connections_max), false],
    [t("upstream.queue"), of(limits.pending, limits.pending_max), limits.pending > 0],
    [t("upstream.refused"), number(limits.refused_full + limits.refused_late), limits.refused_full + limits.refused_late > 0],
    [t("upstream.retries_refused"), number(limits.retries_refused), limits.retries_refused > 0],
  ];
  return html`<dl class="figures small">${facts.map(([label, value, isNoted]) => html`<div class=${`figure ${isNoted ? "warn" : ""}`} key=${label}><dt>${label}</dt><dd><span class="value">${value}</span></dd></div>`)}</dl>`;
}
