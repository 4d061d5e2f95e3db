// Login with a key, which the gateway exchanges for a cookie that no script can read.

import { html, useEffect, useRef, useState } from "../app/core.js";
import { login, loginFailure, loginWays } from "../app/api.js";
import { store } from "../app/settings.js";
import { t, setLanguage, language, LANGUAGES } from "../app/i18n.js";

export function Page() {
  const [error, setError] = useState("");
  const [openid, setOpenid] = useState(/** @type {{ host: string } | null} */ (null));
  const [isBusy, setBusy] = useState(false);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    loginWays().then((ways) => setOpenid(ways.openid), () => {});
    document.title = `${t("login.title")} · Yumen`;
    field.current?.focus();
  }, []);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const key = field.current?.value.trim() ?? "";
    if (!key) return;
    setBusy(true);
    setError("");
    loginFailure.value = "";
    try {
      await login(key);
    } catch (failed) {
      const { status, message } = /** @type {any} */ (failed);
      setError(status === 401 ? t("login.wrong") : status === 429 ? t("login.failed.limited") : message);
      setBusy(false);
      field.current?.select();
    }
  };
  return html`<main class="login">
    <form onSubmit=${submit}>
      <h1><svg viewBox="0 0 32 32" width="34" height="34" aria-hidden="true"><rect width="32" height="32" rx="7" /><path d="M7 9h18M9.500 9v15M22.500 9v15M9.500 14h13" /></svg>Yumen</h1>
      <label for="key">${t("login.key")}</label>
      <input id="key" ref=${field} type="password" autocomplete="current-password" spellcheck="false" aria-describedby="key-hint key-error" aria-invalid=${error ? "true" : undefined} />
      <p id="key-hint" class="hint">${t("login.hint")} <code>yumen keys rotate admin</code></p>
      <p id="key-error" class="error" role="alert">${error}</p>
      <button class="primary" disabled=${isBusy}>${t("login.submit")}</button>
      ${loginFailure.value && html`<p class="error" role="alert">${t(`login.failed.${loginFailure.value}`)}</p>`}
      ${openid && html`<a class="button openid" href="login" onClick=${() => store("return", location.hash)}>${t("login.openid", { host: openid.host })}</a>`}
      <select aria-label=${t("app.language")} value=${language.value} onChange=${(/** @type {any} */ event) => setLanguage(event.currentTarget.value)}>
        ${Object.entries(LANGUAGES).map(([code, name]) => html`<option key=${code} value=${code}>${name}</option>`)}
      </select>
    </form>
  </main>`;
}
