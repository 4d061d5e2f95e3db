// Any request at any revision.

import { html } from "../app/core.js";
import { t } from "../app/i18n.js";
import { place, setQuery } from "../app/router.js";
import { ExplainBox } from "../app/explain_box.js";
import { Heading, Panel } from "../app/widgets.js";

export function Page() {
  const query = place.value.query;
  const value = (/** @type {string} */ name) => query.get(name) ?? "";
  const start = {
    url: value("url"), method: value("method") || "GET", client_ip: value("client"), consumer: value("consumer"),
    sni: value("sni"), listener: value("listener"), why_not: value("why_not"), at: value("at"),
  };
  const asked = (/** @type {any} */ form) => setQuery({ url: form.url, method: form.method === "GET" ? "" : form.method, client: form.client_ip, consumer: form.consumer, sni: form.sni, listener: form.listener, why_not: form.why_not, at: form.at });
  return html`<${Heading} title=${t("nav.explain")} sub=${t("about.explain")} />
    <${Panel}><${ExplainBox} start=${start} isLong asked=${asked} isAskedNow=${Boolean(start.url)} /><//>`;
}
