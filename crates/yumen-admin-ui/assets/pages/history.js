// The history of the configuration: revisions, one of them, and the difference between two.

import { html, useState } from "../app/core.js";
import { get, mayWrite } from "../app/api.js";
import { t, number, time, ago } from "../app/i18n.js";
import { href, go, place } from "../app/router.js";
import { node } from "../app/live.js";
import { Changes, Revisions, Rollback } from "../app/revisions.js";
import { Heading, Loaded, Panel, useLoad } from "../app/widgets.js";

/** @param {{ id?: string }} props */
export function Page({ id }) {
  if (id === "diff") return html`<${Difference} />`;
  return id === undefined ? html`<${List} />` : html`<${One} revision=${Number(id)} />`;
}

function List() {
  const object = place.value.query.get("object") ?? "";
  const newest = node.value?.revision ?? 0;
  const filter = (/** @type {any} */ event) => {
    event.preventDefault();
    go(href(["history"], { object: new FormData(event.currentTarget).get("object")?.toString() }));
  };
  const compare = (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    go(href(["history", "diff"], { from: form.get("from")?.toString(), to: form.get("to")?.toString() }));
  };
  return html`<${Heading} title=${t("nav.history")} sub=${t("about.history")} />
    <div class="filter">
      <form onSubmit=${filter}><label class="field inline"><span>${t("column.object")}</span><input name="object" class="mono" value=${object} placeholder="routes/1" /></label><button>${t("history.filter")}</button></form>
      <form onSubmit=${compare} key=${newest}><label class="field inline"><span>${t("history.from")}</span><input name="from" type="number" min="1" required defaultValue=${Math.max(1, newest - 1)} /></label>
        <label class="field inline"><span>${t("history.to")}</span><input name="to" type="number" min="1" defaultValue=${newest} /></label><button>${t("history.compare")}</button></form>
    </div>
    <${Panel}><${Revisions} object=${object || undefined} /><//>`;
}

/** @param {{ revision: number }} props */
function One({ revision }) {
  const of = useLoad(() => get(`/yumen/v1/revisions/${revision}`), [revision]);
  const [isOpen, setOpen] = useState(false);
  const newest = node.value?.revision ?? revision;
  return html`<${Heading} title=${t("app.revision", { revision: number(revision) })} sub=${of.data && html`${of.data.author} · <time>${time(of.data.time_unix_ms)}</time> (${ago(of.data.time_unix_ms)})${of.data.reason ? html` · “${of.data.reason}”` : ""}`}>
      <a class="button" href=${href(["explain"], { at: revision })}>${t("history.explain")}</a>
      ${revision < newest && html`<a class="button" href=${href(["history", "diff"], { from: revision, to: newest })}>${t("history.to_newest")}</a>`}
      ${mayWrite() && revision < newest && html`<button class="primary" onClick=${() => setOpen(true)}>${t("history.rollback")}</button>`}
    <//>
    <${Panel} title=${t("column.changes")}><${Loaded} of=${of}>${(/** @type {any} */ data) => html`<${Changes} changes=${data.changes} />`}<//><//>
    ${isOpen && html`<${Rollback} revision=${revision} close=${() => setOpen(false)} done=${() => go(href(["history"]))} />`}`;
}

function Difference() {
  const [from, to] = [place.value.query.get("from") ?? "", place.value.query.get("to") ?? ""];
  const of = useLoad(() => get(`/yumen/v1/diff?from=${encodeURIComponent(from)}${to ? `&to=${encodeURIComponent(to)}` : ""}`), [from, to]);
  return html`<${Heading} title=${t("history.difference", { from, to: to || t("explain.newest") })} sub=${html`<a href=${href(["history"])}>${t("nav.history")}</a>`} />
    <${Panel}><${Loaded} of=${of}>${(/** @type {any} */ data) => html`<${Changes} changes=${data.changes} />`}<//><//>`;
}
