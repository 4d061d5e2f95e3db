// Requests to the gateway that serves this page. No other host is ever asked.

import { signal } from "./core.js";
import { leaveGuard } from "./router.js";
import { store, stored } from "./settings.js";

/**
 * @typedef {{ name: string, role: "admin" | "viewer", login: "session" | "key" | "none",
 *   expires_in_s: number | null, version: string }} Session
 */

/** The client's session: `undefined` before the first response, `null` without one. */
export const session = signal(/** @type {Session | null | undefined} */ (undefined));

/** Whether the gateway answered the last request. */
export const isReachable = signal(true);

/** The last client: its page goes when another one takes its place. */
export const holder = { id: "", forget: () => {} };

/** Storage belongs to an origin with its port, unlike the cookie, which every port of the host receives. */
const TOKEN = "csrf";
let token = stored(TOKEN) ?? "";

/** @param {string} value */
function keepToken(value) {
  token = value;
  store(TOKEN, value);
}

// Another tab has logged in or out, and the browser has one cookie for both.
addEventListener("storage", (event) => {
  const value = event.key === `yumen.${TOKEN}` ? (event.newValue ?? "") : token;
  if (value === token) return;
  token = value;
  void readSession().catch(() => {});
});

/** @param {Session} next */
function admit(next) {
  const id = `${next.role}/${next.name}`;
  if (holder.id && holder.id !== id) {
    leaveGuard.ask = null;
    holder.forget();
  }
  holder.id = id;
  session.value = next;
}

export class ApiError extends Error {
  /**
   * @param {number} status 0 without a response
   * @param {string} message
   * @param {any} body
   */
  constructor(status, message, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

/**
 * @typedef {{ method?: string, body?: unknown, text?: string, headers?: Record<string, string>, signal?: AbortSignal }} CallOptions
 * @typedef {{ status: number, data: any, headers: Headers }} Reply
 */

/**
 * @param {string} path relative to the root of the API, such as `/yumen/v1/applied`
 * @param {CallOptions} [options]
 * @returns {Promise<Reply>}
 */
export async function call(path, options = {}) {
  const { method = "GET", body, text, headers = {}, signal: abort } = options;
  const fields = new Headers(headers);
  if (token) fields.set("X-Yumen-Csrf", token);
  const content = text ?? (body === undefined ? undefined : JSON.stringify(body));
  if (content !== undefined) fields.set("Content-Type", "application/json");
  let response;
  try {
    response = await fetch(`..${path}`, {
      method,
      headers: fields,
      body: content,
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal: abort ?? null,
    });
  } catch (error) {
    if (abort?.aborted) throw error;
    isReachable.value = false;
    throw new ApiError(0, String(/** @type {Error} */ (error).message), null);
  }
  isReachable.value = true;
  const raw = await response.text();
  const data = parsed(raw);
  const isOver = response.status === 401 ? !/role viewer/.test(raw) : response.status === 403 && /X-Yumen-Csrf/.test(raw);
  if (isOver && path !== SESSION && path !== "/ui/session") session.value = null;
  if (!response.ok) throw new ApiError(response.status, messageOf(data, raw, response.status), data);
  return { status: response.status, data, headers: response.headers };
}

/** @param {string} path */
export const get = async (path) => (await call(path)).data;

const SESSION = "/yumen/v1/session";

/** Reads the holder of the session. */
export async function readSession() {
  try {
    admit(await get(SESSION));
  } catch (error) {
    if (error instanceof ApiError && error.status !== 0) session.value = null;
    else throw error;
  }
}

/** @param {string} key */
export async function login(key) {
  const { csrf_token, ...next } = (await call(SESSION, { method: "POST", headers: { "X-API-KEY": key } })).data;
  keepToken(csrf_token);
  admit(next);
}

/** The reason why a login at the identity provider failed, as a word. */
export const loginFailure = signal("");

/** The ways to log in besides a key. @returns {Promise<{ openid: { host: string } | null }>} */
export const loginWays = () => get("/ui/logins");

/** Opens the session of a login at the identity provider. @param {string} code */
export async function completeLogin(code) {
  const { csrf_token, ...next } = (await call("/ui/session", { method: "POST", headers: { "X-Yumen-Login": code } })).data;
  keepToken(csrf_token);
  admit(next);
}

export async function logout() {
  try {
    await call(SESSION, { method: "DELETE" });
  } finally {
    // Nothing stays of the page.
    keepToken("");
    leaveGuard.ask = null;
    session.value = null;
  }
}

/** Whether the client may write. */
export const mayWrite = () => session.value?.role === "admin";

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * @param {any} data
 * @param {string} raw
 * @param {number} status
 */
function messageOf(data, raw, status) {
  const message = data?.description ?? data?.error_msg ?? data?.message ?? raw.trim().slice(0, 300);
  const hint = data?.hint ? `; ${data.hint}` : "";
  const errors = (data?.errors ?? []).map((/** @type {any} */ one) => `\n${one.object ?? ""}: ${one.error ?? ""}`).join("");
  return (message || `status ${status}`) + hint + errors;
}

/** @param {string} kind @param {string} id */
export function objectPath(kind, id) {
  // Credentials and secrets have ids of several segments; a slash within an id of Kubernetes, which has a `!`, is encoded.
  const parts = id.split("/");
  const isWhole = kind === "credentials" ? parts.length === 3 && parts[1] === "credentials" : kind === "secrets" ? parts.length === 2 : parts.length === 1 || id.includes("!");
  // A browser removes the segments `.` and `..` from a URL, and the node ignores empty ones: the path would be another object's.
  if (!isWhole || [kind, ...parts].some((part) => /^\.{0,2}$/.test(part))) throw new Error(`"${id}" is not an id of ${kind}`);
  const segments = kind === "credentials" || kind === "secrets" ? parts : [id];
  const collection = kind === "credentials" ? "consumers" : kind;
  return `/apisix/admin/${collection}/${segments.map(encodeURIComponent).join("/")}`;
}

/** The header field with the reason of a change: UTF-8 bytes, one per character. @param {string} reason @returns {Record<string, string>} */
export function reasonField(reason) {
  const bytes = new TextEncoder().encode(reason.trim().replace(/\s+/g, " "));
  return bytes.length ? { "X-Yumen-Reason": String.fromCharCode(...bytes.slice(0, 512)) } : {};
}
