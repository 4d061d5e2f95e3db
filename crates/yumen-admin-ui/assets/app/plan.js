// The effects of a change before it is written.

import { html } from "./core.js";
import { t, number } from "./i18n.js";
import { Badge, Grid, ObjectLink } from "./widgets.js";

/** @param {{ plan: any }} props */
export function PlanView({ plan }) {
  const fresh = plan.problems.filter((/** @type {any} */ one) => one.is_new);
  const { impact } = plan;
  const tone = (/** @type {string} */ level) => (level === "error" ? "bad" : "warn");
  return html`<div class="plan">
    ${plan.needs_confirmation && html`<p class="remark bad" role="note">${plan.needs_confirmation}</p>`}
    <p>${impact.asked === 0 ? t("plan.no_sample") : impact.changed === 0 ? t("plan.none_changed", { asked: number(impact.asked) }) : t("plan.changed", { asked: number(impact.asked), changed: number(impact.changed) })}</p>
    ${impact.changed > 0 && html`<ul>
      ${/** @type {[string, number][]} */ ([["lose_route", impact.lose_route], ["change_route", impact.change_route], ["change_answer", impact.change_answer], ["change_upstream", impact.change_upstream], ["refused", impact.refused]])
        .filter(([, count]) => count > 0)
        .map(([name, count]) => html`<li key=${name}>${t(`plan.${name}`)}: <b>${number(count)}</b></li>`)}
    </ul>
    ${impact.examples.length > 0 && html`<${Grid} label=${t("plan.examples")} head=${[t("plan.request"), t("plan.before"), t("plan.after")]}
      rows=${impact.examples.slice(0, 5).map((/** @type {any} */ one) => [html`<span class="mono">${one.request}</span>`, outcome(one.before), outcome(one.after)])} />`}`}
    <${Grid} label=${t("plan.changes")} head=${[t("column.object"), t("plan.effect"), ""]}
      rows=${plan.changes.map((/** @type {any} */ one) => [html`<${ObjectLink} name=${`${one.kind}/${one.id}`} />`, effect(one), html`<code class="wrap">${(one.paths ?? []).join(", ")}</code>`])} />
    ${fresh.length > 0 && html`<ul class="problems">${fresh.map((/** @type {any} */ one) => html`<li key=${one.object + one.path + one.message}>
      <${Badge} tone=${tone(one.level)}>${t(`level.${one.level}`)}<//><div><span class="mono">${one.object}</span> ${one.path && html`<code>${one.path}</code>`}<p>${one.message} ${one.hint ?? ""}</p></div>
    </li>`)}</ul>`}
  </div>`;
}

const TONES = { added: "good", changed: "info", removed: "bad" };

/** @param {{ what: keyof typeof TONES }} change */
const effect = ({ what }) => html`<${Badge} tone=${TONES[what]}>${t(`plan.what.${what}`)}<//>`;

/** @param {any} result */
function outcome(result) {
  if (result === null || result === undefined) return "–";
  if (typeof result === "string") return result;
  const parts = [result.route && `routes/${result.route}`, result.plugin, result.status, result.upstream].filter(Boolean);
  return html`<span class="mono">${parts.join(" · ") || "404"}</span>`;
}
