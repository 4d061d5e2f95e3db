// Starts the dashboard: language and session, then the page of the address.

import { html, render, useEffect, useState } from "./core.js";
import { completeLogin, holder, loginFailure, session, readSession } from "./api.js";
import { setLanguage, loadMore, t, language } from "./i18n.js";
import { KINDS } from "./kinds.js";
import { forgetObjects } from "./objects.js";
import { leaveGuard, place, replacePage } from "./router.js";
import { store, stored } from "./settings.js";
import { Shell } from "./shell.js";
import { Loading, Failure } from "./widgets.js";

/** The module of each page, loaded when it is first shown. @type {Record<string, () => Promise<{ Page: any }>>} */
const PAGES = {
  overview: () => import("../pages/overview.js"),
  list: () => import("../pages/list.js"),
  object: () => import("../pages/object.js"),
  edit: () => import("../pages/edit.js"),
  upstreams: () => import("../pages/upstreams.js"),
  history: () => import("../pages/history.js"),
  explain: () => import("../pages/explain.js"),
  problems: () => import("../pages/problems.js"),
  cluster: () => import("../pages/cluster.js"),
  login: () => import("../pages/login.js"),
};

const OWN_PAGES = ["history", "explain", "problems", "cluster"];

/** The page of an address, and its subject. @param {string[]} path */
function pageOf(path) {
  const [first, second, third] = path;
  if (!first) return { page: "overview", about: {} };
  if (OWN_PAGES.includes(first)) return { page: first, about: { id: second } };
  // The list refuses a kind that it does not know, such as `constructor`.
  if (!Object.hasOwn(KINDS, first)) return { page: "list", about: { kind: first } };
  if (second === undefined) return { page: first === "upstreams" ? "upstreams" : "list", about: { kind: first } };
  if (second === "new") return { page: "edit", about: { kind: first, id: null } };
  return { page: third === "edit" ? "edit" : "object", about: { kind: first, id: second } };
}

/** @type {Record<string, any>} */
const loaded = {};

/** @param {{ page: string, about: Record<string, unknown> }} props */
function Lazy({ page, about }) {
  const [, setCount] = useState(0);
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  useEffect(() => {
    setError(null);
    if (loaded[page]) return;
    const load = /** @type {() => Promise<{ Page: any }>} */ (PAGES[page]);
    const texts = page === "overview" || page === "login" ? null : loadMore();
    Promise.all([load(), texts]).then(
      ([module]) => {
        loaded[page] = module.Page;
        setCount((count) => count + 1);
      },
      // After an upgrade the gateway has other files than this page.
      () => setError(new Error(t("app.reload"))),
    );
  }, [page]);
  if (error) return html`<${Failure} error=${error} retry=${() => location.reload()} />`;
  const Page = loaded[page];
  return Page ? html`<${Page} key=${`${page}/${about["kind"] ?? ""}/${about["id"] ?? ""}`} ...${about} />` : html`<${Loading} />`;
}

function App() {
  void language.value;
  if (session.value === undefined) return html`<${Loading} />`;
  // A session that ends while a text is not saved yet keeps the page, hidden, until the next login.
  const isOver = session.value === null;
  const login = isOver && html`<${Lazy} page="login" about=${{}} />`;
  if (isOver && !leaveGuard.ask) return login;
  const { page, about } = pageOf(place.value.path);
  return html`<div key=${holder.id} hidden=${isOver}><${Shell} page=${page} about=${about}><${Lazy} page=${page} about=${about} /><//></div>${login}`;
}

/** Reasons that the gateway names in the address, for which there are texts. */
const FAILURES = ["unavailable", "expired", "refused", "no_role", "limited"];

/** The way back from the identity provider: whether it opened a session. */
async function endLogin() {
  const [first = "", code] = place.value.path;
  const failure = FAILURES.find((word) => first === `login-${word}`);
  if (first !== "login" && !failure) return false;
  // The page before the login. The code is of use once.
  const before = stored("return") ?? "";
  store("return", "");
  replacePage(before.startsWith("#/") && !before.startsWith("#/login") ? before : "#/");
  loginFailure.value = failure ?? "";
  if (!code) return false;
  try {
    await completeLogin(code);
    return true;
  } catch (error) {
    if (/** @type {any} */ (error).status === 0) throw error;
    loginFailure.value = "expired";
    return false;
  }
}

async function start() {
  const root = /** @type {HTMLElement} */ (document.getElementById("app"));
  holder.forget = forgetObjects;
  await setLanguage();
  render(html`<${App} />`, root);
  try {
    if (!(await endLogin())) await readSession();
  } catch (error) {
    render(html`<${Failure} error=${error} retry=${() => location.reload()} />`, root);
  }
}

void start();
