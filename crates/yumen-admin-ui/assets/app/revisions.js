// Revisions of the configuration: list, changes, rollback.

import { html, useEffect, useRef, useState } from "./core.js";
import { call, get, mayWrite, reasonField } from "./api.js";
import { t, number, time, ago } from "./i18n.js";
import { href } from "./router.js";
import { node } from "./live.js";
import { Badge, Dialog, Empty, Failure, Grid, Loading, ObjectLink, notify } from "./widgets.js";

/** @param {{ object?: string, limit?: number }} props */
export function Revisions({ object, limit = 50 }) {
  const [list, setList] = useState(/** @type {any[] | null} */ (null));
  const [isEnd, setEnd] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (null));
  const revision = node.value?.revision;
  const load = async (/** @type {number | undefined} */ before) => {
    const one = object ? `&object=${encodeURIComponent(object)}` : "";
    try {
      const { revisions } = await get(`/yumen/v1/revisions?limit=${limit}${one}${before ? `&before=${before}` : ""}`);
      setList((known) => (before ? [...(known ?? []), ...revisions] : revisions));
      setEnd(revisions.length < limit);
      setError(null);
    } catch (failed) {
      setError(failed);
    }
  };
  useEffect(() => void load(undefined), [object, revision]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!list) return html`<${Loading} />`;
  if (!list.length) return html`<${Empty}>${t("history.none")}<//>`;
  return html`<${Grid} label=${t("nav.history")} head=${[t("column.revision"), t("chart.time"), t("column.author"), t("history.reason"), t("column.changes")]}
    rows=${list.map((one) => [
      html`<a href=${href(["history", one.revision])}>${number(one.revision)}</a>`,
      html`<time title=${ago(one.time_unix_ms)}>${time(one.time_unix_ms)}</time>`,
      one.author,
      one.reason ?? "",
      html`<${ChangeList} changes=${one.changes} />`,
    ])} />
    ${!isEnd && html`<button onClick=${() => load(list.at(-1).revision)}>${t("history.older")}</button>`}`;
}

const TONES = { created: "good", changed: "info", deleted: "bad" };
/** @param {string} action */
export const actionTone = (action) => TONES[/** @type {keyof typeof TONES} */ (action)] ?? "plain";

/** @param {{ changes: any[] }} props */
function ChangeList({ changes }) {
  const shown = changes.slice(0, 4);
  return html`${shown.map((one) => html`<span class="pair" key=${one.object}><${Badge} tone=${actionTone(one.action)}>${t(`action.${one.action}`)}<//> <${ObjectLink} name=${one.object} /></span>`)}${changes.length > shown.length ? html`<span class="sub">+${number(changes.length - shown.length)}</span>` : ""}`;
}

/** The changes of a revision or between two, path by path. @param {{ changes: any[] }} props */
export function Changes({ changes }) {
  if (!changes.length) return html`<${Empty}>${t("history.no_difference")}<//>`;
  return changes.map((one) => html`<section class="change" key=${one.object}>
    <h3><${Badge} tone=${actionTone(one.action)}>${t(`action.${one.action}`)}<//> <${ObjectLink} name=${one.object} /></h3>
    ${one.paths?.length ? html`<${Grid} label=${one.object} head=${[t("column.path"), t("plan.before"), t("plan.after")]}
        rows=${one.paths.map((/** @type {any} */ path) => [html`<code>${path.path}</code>`, html`<code class="wrap before">${shown(path.before)}</code>`, html`<code class="wrap after">${shown(path.after)}</code>`])} />`
      : html`<pre class=${`json ${one.after ? "after" : "before"}`} tabindex="0" role="region" aria-label=${one.object}>${JSON.stringify(one.after ?? one.before, null, 2)}</pre>`}
  </section>`);
}

/** @param {any} value */
const shown = (value) => (value === null || value === undefined ? "–" : JSON.stringify(value));

/** @param {{ revision: number, close: () => void, done: () => void }} props */
export function Rollback({ revision, close, done }) {
  const [reason, setReason] = useState("");
  const [diff, setDiff] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  // Changes after those on display are refused.
  const from = useRef(node.value?.revision ?? 0).current;
  useEffect(() => void get(`/yumen/v1/diff?from=${from}&to=${revision}`).then(setDiff, setError), [revision]);
  const needsConfirmation = error?.status === 409 && error.body?.needs_confirmation;
  const run = async () => {
    try {
      const { data } = await call(`/yumen/v1/revisions/${revision}/rollback?wait=applied${from ? `&expected_revision=${from}` : ""}${needsConfirmation ? "&confirm=true" : ""}`, { method: "POST", headers: reasonField(reason) });
      notify(t("history.restored", { revision, changed: data.changed }), data.expired.length ? "warn" : "good");
      done();
    } catch (failed) {
      setError(failed);
    }
  };
  return html`<${Dialog} title=${t("history.rollback_title", { revision: number(revision) })} close=${close} wide actions=${html`
      <button onClick=${close}>${t("app.cancel")}</button>
      <button class=${needsConfirmation ? "danger" : "primary"} disabled=${!reason.trim() || !mayWrite()} onClick=${run}>${needsConfirmation ? t("history.confirm") : t("history.rollback")}</button>`}>
    <p>${t("history.rollback_about")}</p>
    <label class="field"><span>${t("history.reason")}</span><input value=${reason} maxlength="500" required onInput=${(/** @type {any} */ event) => setReason(event.currentTarget.value)} /></label>
    ${error && html`<${Failure} error=${error} />`}
    ${diff ? html`<${Changes} changes=${diff.changes} />` : !error && html`<${Loading} />`}
  <//>`;
}
