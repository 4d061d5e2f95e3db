// References to secret managers with the states of their values, which the node never shows.

import { html, useState } from "./core.js";
import { call, get, mayWrite } from "./api.js";
import { t, number, ago } from "./i18n.js";
import { Badge, Failure, Grid, Loaded, ObjectLink, Panel, notify, useLoad } from "./widgets.js";

export function SecretReferences() {
  const of = useLoad(() => get("/yumen/v1/secrets"), []);
  const [error, setError] = useState(/** @type {any} */ (null));
  const refresh = async () => {
    setError(null);
    try {
      const { data } = await call("/yumen/v1/secrets/refresh", { method: "POST" });
      notify(t("secret.refreshed", { count: number(data.refreshed) }));
      of.reload();
    } catch (failed) {
      setError(failed);
    }
  };
  return html`<${Panel} title=${t("secret.references")} actions=${mayWrite() && html`<button class="quiet" onClick=${refresh}>${t("secret.refresh")}</button>`}>
    ${error && html`<${Failure} error=${error} />`}
    <${Loaded} of=${of}>${(/** @type {any} */ body) => html`<${Grid} label=${t("secret.references")} empty=${t("secret.none")} head=${[t("secret.reference"), t("column.state"), t("secret.fetched"), t("secret.users")]}
      rows=${body.secrets.map((/** @type {any} */ one) => [
        html`<code class="wrap">${one.reference}</code>`,
        html`<${Badge} tone=${one.state === "current" ? "good" : one.state === "failing" ? "bad" : "warn"}>${t(`secret.state.${one.state}`)}<//>${one.error ? html` <span class="sub">${one.error}</span>` : ""}`,
        one.age_ms === undefined || one.age_ms === null ? "" : ago(Date.now() - one.age_ms),
        one.users.map((/** @type {any} */ user) => html`<div key=${user.object + user.path}><${ObjectLink} name=${user.object} /> <code>${user.path}</code></div>`),
      ])} />`}<//>
  <//>`;
}
