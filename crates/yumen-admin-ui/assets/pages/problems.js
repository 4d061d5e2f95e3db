// Problems of the configuration in force, and findings of the linter.

import { html, useState } from "../app/core.js";
import { get, mayWrite } from "../app/api.js";
import { t } from "../app/i18n.js";
import { href } from "../app/router.js";
import { KINDS } from "../app/kinds.js";
import { node } from "../app/live.js";
import { Badge, Empty, Heading, Loaded, ObjectLink, Panel, Tabs, useLoad, counted } from "../app/widgets.js";

export function Page() {
  const [tab, setTab] = useState("problems");
  const revision = node.value?.revision;
  const problems = useLoad(() => get("/yumen/v1/problems"), [revision]);
  const lint = useLoad(() => get("/yumen/v1/lint"), [revision]);
  const count = (/** @type {any} */ of) => (of.data ? ` (${of.data.length})` : "");
  return html`<${Heading} title=${t("nav.problems")} sub=${t(`about.${tab}`)} />
    <${Tabs} label=${t("nav.problems")} value=${tab} change=${setTab} tabs=${[["problems", t("nav.problems") + count(problems)], ["lint", t("problems.lint") + count(lint)]]} />
    <${Panel}><${Loaded} of=${tab === "problems" ? problems : lint}>${(/** @type {any[]} */ list) => html`<${Findings} list=${list} />`}<//><//>`;
}

/** @param {{ list: any[] }} props */
function Findings({ list }) {
  if (!list.length) return html`<${Empty}>${t("problems.none")}<//>`;
  const byObject = Map.groupBy ? Map.groupBy(list, (one) => one.object) : new Map(list.map((one) => [one.object, list.filter((other) => other.object === one.object)]));
  return html`<p class="sub" role="status">${counted(list.length, "problems.count")}</p><ul class="problems">${[...byObject].map(([object, own]) => html`<li key=${object}>
    <div class="object"><${ObjectLink} name=${object} />${mayWrite() && isEditable(object) ? html` <a class="quiet" href=${href([...split(object), "edit"])}>${t("object.edit")}<span class="only-read"> ${object}</span></a>` : ""}</div>
    <ul>${own.map((/** @type {any} */ one) => html`<li key=${one.path + one.message}>
      <${Badge} tone=${one.level === "error" ? "bad" : "warn"}>${t(`level.${one.level}`)}<//>
      <div>${one.path && html`<code>${one.path}</code> `}${one.message}${one.allowed || one.hint ? html`<p class="hint">${[one.allowed, one.hint].filter(Boolean).join("; ")}</p>` : ""}${one.last_good ? html`<p class="hint">${t("problems.last_good")}</p>` : ""}</div>
    </li>`)}</ul>
  </li>`)}</ul>`;
}

/** Whether the editor has a page for an object: those of a controller are read-only. @param {string} object */
const isEditable = (object) => object.includes("/") && !object.includes("!") && Object.hasOwn(KINDS, split(object)[0] ?? "");

/** @param {string} object */
function split(object) {
  const slash = object.indexOf("/");
  const [kind, id] = [object.slice(0, slash), object.slice(slash + 1)];
  return [kind === "consumers" && id.includes("/credentials/") ? "credentials" : kind, id];
}
