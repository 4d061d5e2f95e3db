// The editor: a form of the node's schema beside the text, both ways; the node validates as one types, and shows the effect
// before anything is saved.

import { html, useEffect, useState } from "../app/core.js";
import { call, get, mayWrite, objectPath, reasonField } from "../app/api.js";
import { t } from "../app/i18n.js";
import { go, href, leaveGuard, place } from "../app/router.js";
import { KINDS, originOf } from "../app/kinds.js";
import { refresh } from "../app/objects.js";
import { ObjectField, pluginUse, schemaAt } from "../app/form.js";
import { FormChoice, pretty, useObjectText } from "../app/object_text.js";
import { TextEditor } from "../app/text_editor.js";
import { PlanView } from "../app/plan.js";
import { Dialog, Failure, Heading, Loading, notify } from "../app/widgets.js";

/** @typedef {{ text: string, modified: number | null, value: any }} StoredText */

/** @param {{ kind: string, id: string | null }} props */
export function Page({ kind, id }) {
  const view = Object.hasOwn(KINDS, kind) ? KINDS[kind] : undefined;
  const [schema, setSchema] = useState(/** @type {any} */ (null));
  const [stored, setStored] = useState(/** @type {StoredText | null} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  useEffect(() => {
    pluginUse.isConsumer = kind === "consumers" || kind === "credentials";
    pluginUse.isStream = kind === "stream_routes";
    schemaOf(kind, id).then(setSchema, setError);
    if (id === null) setStored({ text: pretty(view?.start ?? {}), modified: null, value: null });
    else load(kind, id).then((one) => setStored({ text: pretty(clean(one.value)), modified: one.modifiedIndex, value: clean(one.value) }), setError);
  }, [kind, id]);
  if (!view) return html`<${Failure} error=${new Error(t("app.no_page"))} />`;
  if (error) return html`<${Failure} error=${error} />`;
  if (!schema || !stored) return html`<${Loading} />`;
  return html`<${Editor} kind=${kind} id=${id} view=${view} schema=${schema} stored=${stored} />`;
}

/** @param {string} kind @param {string} id */
const load = async (kind, id) => get(objectPath(kind, id));

/** The schema of a kind; that of a plugin's metadata depends on the plugin. @param {string} kind @param {string | null} id */
function schemaOf(kind, id) {
  if (kind === "plugin_metadata" && id !== null) return schemaAt(`/apisix/admin/schema/plugins/${encodeURIComponent(id)}?schema_type=metadata`);
  return schemaAt(`/apisix/admin/schema/${KINDS[kind]?.singular ?? kind}`);
}

/** @param {any} value */
function clean(value) {
  const { create_time, update_time, ...rest } = value;
  return rest;
}

/** @param {{ kind: string, id: string | null, view: import("../app/kinds.js").KindView, schema: any, stored: StoredText }} props */
function Editor({ kind, id, view, schema, stored }) {
  const object = useObjectText(stored.text);
  const { text, json, isChanged } = object;
  const [newId, setNewId] = useState(place.value.query.get("consumer") ? `${place.value.query.get("consumer")}/credentials/` : "");
  const [finding, setFinding] = useState(/** @type {string | null} */ (null));
  const [isReviewed, setReviewed] = useState(false);
  const isReadOnly = !mayWrite() || Boolean(stored.value && originOf(stored.value));
  useEffect(() => {
    leaveGuard.ask = isChanged && !isReadOnly ? () => confirm(t("edit.leave")) : null;
    return () => {
      leaveGuard.ask = null;
    };
  }, [isChanged]);
  const needsId = id === null && view.idMember === undefined;
  useEffect(() => {
    if (isReadOnly || json === null) {
      if (!object.isPending) setFinding(object.error ?? null);
      return;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => validate(kind, id ?? newId, view, json, abort.signal).then(setFinding, () => {}), 350);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
    // Again after a login: the role may be another one.
  }, [json, object.error, newId, isReadOnly]);
  const isUnready = object.isPending || json === null || Boolean(finding);
  const review = () => !isReadOnly && !isUnready && (!needsId || view.fixedId !== true || newId) && setReviewed(true);
  const keys = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      review();
    }
  };
  const title = id === null ? t("edit.new", { kind: t(`one.${kind}`) }) : id;
  return html`<div class="editor" onKeyDown=${keys}>
    <${Heading} title=${title} sub=${html`<a href=${href([kind])}>${t(`kind.${kind}`)}</a>${id === null ? "" : html` / <a class="mono" href=${href([kind, id])}>${id}</a>`}`}>
      ${isReadOnly ? html`<span class="sub">${t("edit.read_only")}</span>` : html`
        <button disabled=${!isChanged} onClick=${object.reset}>${t("edit.revert")}</button>
        <button class="primary" disabled=${isUnready || (id !== null && !isChanged)} onClick=${review} aria-keyshortcuts="Control+Enter">${t("edit.review")}</button>`}
    <//>
    <p class=${`finding ${object.isPending ? "" : finding ? "bad" : "good"}`} role="status">${isReadOnly ? "" : object.isPending ? t("edit.checking") : finding ?? t("edit.valid")}</p>
    <div class="sides">
      <section class="panel" aria-label=${t("edit.form")}>
        ${needsId && html`<div class="member"><label for="new-id">id</label><div><input id="new-id" class="mono" value=${newId} required=${view.fixedId} onInput=${(/** @type {any} */ event) => setNewId(event.currentTarget.value.trim())} spellcheck="false" autocomplete="off" /><p class="hint">${t(`edit.id.${idHint(kind)}`)}</p></div></div>`}
        ${object.value ? html`<${ObjectField} schema=${schema} value=${object.value} change=${object.setValue} name=${t(`one.${kind}`)} isRoot isReadOnly=${isReadOnly || Boolean(object.error)} />` : ""}
      </section>
      <section class="panel" aria-label=${t("edit.text")}>
        <div class="text-form"><${FormChoice} form=${object.form} label=${t("edit.text")} change=${object.switchTo} isDisabled=${json === null} />
          ${object.form === "yaml" && html`<span class=${hasComment(text) ? "warn" : ""}>${t("edit.comments")}</span>`}</div>
        <${TextEditor} text=${text} change=${object.type} error=${object} label=${t("edit.text")} isReadOnly=${isReadOnly} />
      </section>
    </div>
    ${isReviewed && html`<${Review} ...${{ kind, id, newId, view, text: json ?? "", stored }} close=${() => setReviewed(false)} />`}
  </div>`;
}

/** @param {string} kind */
const idHint = (kind) => ({ credentials: "credential", secrets: "secret", plugin_metadata: "plugin" })[kind] ?? "any";

/** Whether a YAML text seems to have a comment. @param {string} text */
const hasComment = (text) => /(^|\s)#/.test(text);

/** The first finding of the node. @param {string} kind @param {string} id @param {any} view @param {string} text @param {AbortSignal} signal */
async function validate(kind, id, view, text, signal) {
  // A stored certificate comes without its key, and the schema of metadata depends on the plugin: those are checked when they
  // are saved.
  if (view.merges || ["plugin_metadata", "secrets"].includes(kind)) return null;
  const value = JSON.parse(text);
  if (id && view.idMember === undefined && value.id === undefined && kind !== "credentials") text = JSON.stringify({ id, ...value });
  try {
    await call(`/apisix/admin/schema/validate/${view.singular}`, { method: "POST", text, signal });
    return null;
  } catch (error) {
    return [0, 401].includes(/** @type {any} */ (error).status) ? null : /** @type {Error} */ (error).message;
  }
}

/** @param {{ kind: string, id: string | null, newId: string, view: any, text: string, stored: StoredText, close: () => void }} props */
function Review({ kind, id, newId, view, text, stored, close }) {
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [reason, setReason] = useState("");
  const [isBusy, setBusy] = useState(false);
  const value = JSON.parse(text);
  const own = id ?? (view.idMember ? value[view.idMember] : newId || value.id);
  useEffect(() => {
    if (view.noPlan || !own) return;
    call("/yumen/v1/plan", { method: "POST", body: { [kind]: [{ ...value, ...(view.idMember ? {} : { id: own }) }] } }).then(({ data }) => setPlan(data), setError);
  }, []);
  const isConflict = error?.status === 412;
  const submit = async () => {
    setBusy(true);
    try {
      const { data, headers } = await save({ kind, id, own, view, text, value, stored, reason });
      report(headers);
      leaveGuard.ask = null;
      await refresh(kind);
      go(href([kind, own ?? nameOf(data.key, kind)]));
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${t("edit.review_title")} close=${close} wide actions=${html`
      <button onClick=${close}>${t("app.cancel")}</button>
      ${isConflict ? html`<button onClick=${() => location.reload()}>${t("edit.reload")}</button>` : html`<button class="primary" disabled=${isBusy} onClick=${submit}>${t("edit.save")}</button>`}`}>
    ${view.noPlan || !own ? html`<p>${t("edit.no_plan")}</p>` : plan ? html`<${PlanView} plan=${plan} />` : !error && html`<${Loading} />`}
    <label class="field"><span>${t("history.reason")}</span><input value=${reason} maxlength="500" placeholder=${t("edit.reason_hint")} onInput=${(/** @type {any} */ event) => setReason(event.currentTarget.value)} /></label>
    ${error && html`<${Failure} error=${isConflict ? new Error(t("edit.conflict")) : error} />`}
  <//>`;
}

/** @param {any} change */
async function save({ kind, id, own, view, text, value, stored, reason }) {
  const headers = reasonField(reason);
  if (id !== null) headers["If-Match"] = `"${stored.modified}"`;
  else if (own) headers["If-None-Match"] = "*";
  if (id !== null && view.merges) return call(`${objectPath(kind, id)}?wait=applied`, { method: "PATCH", body: mergePatch(stored.value, value), headers });
  if (view.idMember) return call(`/apisix/admin/${kind}?wait=applied`, { method: "PUT", text, headers });
  return own ? call(`${objectPath(kind, own)}?wait=applied`, { method: "PUT", text, headers }) : call(`/apisix/admin/${kind}?wait=applied`, { method: "POST", text, headers });
}

/** Reports the state of the saved object in the running configuration. @param {Headers} headers */
function report(headers) {
  const applied = headers.get("X-Yumen-Applied");
  const warning = headers.get("X-Yumen-First-Warning");
  if (applied === "quarantined") notify(t("edit.quarantined"), "bad");
  else if (applied === "false") notify(t("edit.not_applied"), "warn");
  else notify(t("edit.applied", { revision: headers.get("X-Yumen-Revision") ?? "" }));
  if (warning) notify(warning, "warn");
}

/** The changes between two objects, in the form of PATCH. @param {any} before @param {any} after @returns {any} */
export function mergePatch(before, after) {
  /** @type {Record<string, any>} */
  const patch = {};
  const isObject = (/** @type {any} */ one) => one !== null && typeof one === "object" && !Array.isArray(one);
  for (const [name, value] of Object.entries(after)) {
    if (JSON.stringify(value) === JSON.stringify(before?.[name])) continue;
    patch[name] = isObject(value) && isObject(before?.[name]) ? mergePatch(before[name], value) : value;
  }
  for (const name of Object.keys(before ?? {})) if (!(name in after)) patch[name] = null;
  return patch;
}

/** @param {string} key @param {string} kind */
const nameOf = (key, kind) => key.replace(`/apisix/${kind}/`, "");
