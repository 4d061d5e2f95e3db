// The frame of all pages: navigation, search, state of the node, preferences, keyboard.

import { html, useEffect, useState } from "./core.js";
import { session, isReachable, logout, get } from "./api.js";
import { t, setLanguage, language, LANGUAGES, number } from "./i18n.js";
import { place, href, go } from "./router.js";
import { scheme, setScheme } from "./settings.js";
import { useLive, node } from "./live.js";
import { KINDS } from "./kinds.js";
import { Messages, Dialog, Badge } from "./widgets.js";
import { forgetObjects } from "./objects.js";

/** Letters after `g`. @type {Record<string, string[]>} */
const SHORTCUTS = {
  o: [], r: ["routes"], s: ["services"], u: ["upstreams"], c: ["consumers"], e: ["explain"], h: ["history"], p: ["problems"], n: ["cluster"],
};

/** @type {[string, string[]][]} */
const GROUPS = [
  ["nav.observe", ["overview", "problems", "explain", "history", "cluster"]],
  ["nav.traffic", ["routes", "services", "upstreams", "stream_routes", "global_rules", "plugin_configs", "ssls", "protos"]],
  ["nav.clients", ["consumers", "credentials", "consumer_groups"]],
  ["nav.node", ["listeners", "scopes", "plugin_metadata", "secrets", "tests"]],
];

/** @param {{ page: string, about: Record<string, any>, children: any }} props */
export function Shell({ page, about, children }) {
  useLive();
  const [isHelpOpen, setHelpOpen] = useState(false);
  const [isNavOpen, setNavOpen] = useState(false);
  const [problems, setProblems] = useState(/** @type {{ level: string }[] | null} */ (null));
  const revision = node.value?.revision;
  useEffect(() => {
    get("/yumen/v1/problems").then(setProblems, () => {});
  }, [revision, page]);
  useKeyboard(() => setHelpOpen(true));
  useEffect(() => setNavOpen(false), [page, about["kind"], about["id"]]);
  return html`<div class="shell">
    <a class="skip" href=${location.hash} onClick=${skip}>${t("app.skip")}</a>
    <${TopBar} toggleNav=${() => setNavOpen((open) => !open)} isNavOpen=${isNavOpen} help=${() => setHelpOpen(true)} />
    <nav class=${isNavOpen ? "open" : ""} aria-label=${t("nav.label")} id="nav">
      ${GROUPS.map(([title, names]) => html`<div class="group" key=${title}>
        <h2>${t(title)}</h2>
        <ul>${names.map((name) => html`<li key=${name}><${NavLink} name=${name} page=${page} about=${about} problems=${problems} /></li>`)}</ul>
      </div>`)}
    </nav>
    <main id="main">
      ${!isReachable.value && html`<p class="failure" role="alert">${t("app.unreachable")}</p>`}
      ${children}
    </main>
    <${Messages} />
    ${isHelpOpen && html`<${Help} close=${() => setHelpOpen(false)} />`}
  </div>`;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById("page-title")?.focus();
}

/** @param {{ name: string, page: string, about: Record<string, any>, problems: { level: string }[] | null }} props */
function NavLink({ name, page, about, problems }) {
  const isKind = name in KINDS;
  const isCurrent = isKind ? about["kind"] === name : page === name;
  const path = name === "overview" ? [] : [name];
  const errors = problems?.filter((one) => one.level === "error").length ?? 0;
  return html`<a href=${href(path)} aria-current=${isCurrent ? "page" : undefined}>
    <span>${t(isKind ? `kind.${name}` : `nav.${name}`)}</span>
    ${name === "problems" && problems && problems.length > 0 && html`<${Badge} tone=${errors ? "bad" : "warn"}>${number(problems.length)}<//>`}
  </a>`;
}

/** @param {{ toggleNav: () => void, isNavOpen: boolean, help: () => void }} props */
function TopBar({ toggleNav, isNavOpen, help }) {
  const state = node.value;
  const change = (/** @type {any} */ event) => setLanguage(event.currentTarget.value);
  const leave = async () => {
    await logout().catch(() => {});
    forgetObjects();
  };
  return html`<header class="top">
    <button class="icon menu" aria-label=${t("nav.label")} aria-expanded=${isNavOpen} aria-controls="nav" onClick=${toggleNav}>☰</button>
    <a class="brand" href="#/"><svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true"><rect width="32" height="32" rx="7" /><path d="M7 9h18M9.500 9v15M22.500 9v15M9.500 14h13" /></svg>Yumen</a>
    <${Search} />
    <div class="status">
      ${state && html`<span class="version">${state.version}</span><a href=${href(["history"])}>${t("app.revision", { revision: number(state.revision) })}</a>`}
      ${isReachable.value ? html`<${Badge} tone="good">${t("app.live")}<//>` : html`<${Badge} tone="bad">${t("app.offline")}<//>`}
    </div>
    <div class="preferences">
      <select aria-label=${t("app.language")} value=${language.value} onChange=${change}>
        ${Object.entries(LANGUAGES).map(([code, name]) => html`<option key=${code} value=${code}>${name}</option>`)}
      </select>
      <select aria-label=${t("app.scheme")} value=${scheme.value} onChange=${(/** @type {any} */ event) => setScheme(event.currentTarget.value)}>
        ${["auto", "light", "dark"].map((one) => html`<option key=${one} value=${one}>${t(`app.scheme.${one}`)}</option>`)}
      </select>
      <button class="icon" aria-label=${t("help.title")} title="?" onClick=${help}>?</button>
      ${session.value && html`<span class="who">${session.value.name}${session.value.role === "viewer" ? html` <${Badge}>${t("app.viewer")}<//>` : ""}</span>`}
      ${session.value?.login === "session" && html`<button class="quiet" onClick=${leave}>${t("app.logout")}</button>`}
    </div>
  </header>`;
}

/** Search over routes, or a URL to explain. */
function Search() {
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const text = new FormData(event.currentTarget).get("q")?.toString().trim() ?? "";
    if (!text) return;
    const isUrl = /^([a-z]+:)?\/\//i.test(text);
    go(isUrl ? href(["explain"], { url: text }) : href(["routes"], { q: text }));
    event.currentTarget.reset();
  };
  return html`<form class="search" role="search" onSubmit=${submit}>
    <input id="search" name="q" type="search" autocomplete="off" aria-label=${t("search.label")} placeholder=${t("search.hint")} aria-keyshortcuts="/" />
  </form>`;
}

/** @param {() => void} help */
function useKeyboard(help) {
  useEffect(() => {
    let isPrefixed = false;
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || document.querySelector("dialog[open]");
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      if (isPrefixed) {
        isPrefixed = false;
        const path = SHORTCUTS[event.key];
        if (path) go(href(path));
      } else if (event.key === "g") {
        isPrefixed = true;
        setTimeout(() => (isPrefixed = false), 1500);
      } else if (event.key === "/") {
        event.preventDefault();
        document.getElementById("search")?.focus();
      } else if (event.key === "?") {
        help();
      } else if (event.key === "n" && place.value.path.length === 1 && Object.hasOwn(KINDS, place.value.path[0] ?? "") && session.value?.role === "admin") {
        go(href([place.value.path[0] ?? "", "new"]));
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

/** @param {{ close: () => void }} props */
const Help = ({ close }) => html`<${Dialog} title=${t("help.title")} close=${close}>
  <dl class="keys">
    <dt><kbd>/</kbd></dt><dd>${t("help.search")}</dd>
    <dt><kbd>n</kbd></dt><dd>${t("help.new")}</dd>
    <dt><kbd>?</kbd></dt><dd>${t("help.title")}</dd>
    <dt><kbd>↑</kbd> <kbd>↓</kbd> <kbd>Home</kbd> <kbd>End</kbd></dt><dd>${t("help.rows")}</dd>
    <dt><kbd>Ctrl</kbd> <kbd>Enter</kbd></dt><dd>${t("help.save")}</dd>
    ${Object.entries(SHORTCUTS).map(([key, path]) => html`<dt><kbd>g</kbd> <kbd>${key}</kbd></dt><dd>${t(path[0] && path[0] in KINDS ? `kind.${path[0]}` : `nav.${path[0] ?? "overview"}`)}</dd>`)}
  </dl>
<//>`;
