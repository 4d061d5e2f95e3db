// Small parts that pages share: states, badges, dialogs, messages.

import { html, signal, useEffect, useLayoutEffect, useRef, useState, useId } from "./core.js";
import { t, number } from "./i18n.js";
import { arrival, href, place } from "./router.js";

export const Loading = () => html`<p class="loading" role="status">${t("app.loading")}</p>`;

/** @param {{ error: any, retry?: () => void }} props */
export const Failure = ({ error, retry }) => html`<div class="failure" role="alert">
  <p>${error.status === 0 ? t("app.unreachable") : error.message}</p>
  ${retry && html`<button onClick=${retry}>${t("app.retry")}</button>`}
</div>`;

/** @param {{ children: any }} props */
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

/** A word with a colour; the word carries the meaning. @param {{ tone?: string, children: any }} props */
export const Badge = ({ tone = "plain", children }) => html`<span class=${`badge ${tone}`}>${children}</span>`;

/** @param {{ labels?: Record<string, string> }} props */
export const Labels = ({ labels }) =>
  Object.entries(labels ?? {}).map(([name, value]) => html`<span class="label" key=${name}>${name}=${value}</span>`);

/** Main heading with actions. @param {{ title: any, sub?: any, children?: any }} props */
export function Heading({ title, sub, children }) {
  const text = typeof title === "string" ? title : "";
  useEffect(() => {
    document.title = text ? `${text} · Yumen` : "Yumen";
  }, [text]);
  // A new page starts at its title, for readers of the screen and for the keyboard.
  useEffect(() => {
    if (arrival.isNew) document.getElementById("page-title")?.focus();
    arrival.isNew = false;
  }, [place.value]);
  return html`<header class="heading">
    <div><h1 tabindex="-1" id="page-title">${title}</h1>${sub && html`<p class="sub">${sub}</p>`}</div>
    <div class="actions">${children}</div>
  </header>`;
}

/** @param {{ title?: any, actions?: any, class?: string, children: any }} props */
export const Panel = ({ title, actions, class: name = "", children }) => html`<section class=${`panel ${name}`}>
  ${(title || actions) && html`<header><h2>${title}</h2><div class="actions">${actions}</div></header>`}
  ${children}
</section>`;

/** @param {{ label: any, value: any, note?: any, tone?: string, link?: string }} props */
export const Figure = ({ label, value, note, tone = "", link }) => {
  const figure = html`<span class="value">${value}</span>${note && html`<span class="note">${note}</span>`}`;
  const cover = link && html`<a class="cover" href=${link}><span class="only-read">${label}</span></a>`;
  return html`<div class=${`figure ${tone}`}><dt>${label}</dt><dd>${figure}${cover}</dd></div>`;
};

/** Object name as a link. @param {{ name: string }} props */
export function ObjectLink({ name }) {
  const slash = name.indexOf("/");
  if (slash < 0) return html`<span class="mono">${name}</span>`;
  const [kind, id] = [name.slice(0, slash), name.slice(slash + 1)];
  // Kinds of Kubernetes begin with a capital; the page of the cluster shows their objects.
  if (/^[A-Z]/.test(kind)) return html`<a class="mono" href=${href(["cluster"], { object: name })}>${name}</a>`;
  const isCredential = kind === "consumers" && id.includes("/credentials/");
  return html`<a class="mono" href=${href([isCredential ? "credentials" : kind, id])}>${name}</a>`;
}

/** A time series of one row in the height of a text line. @param {{ values: (number | null)[], label: string }} props */
export function Spark({ values, label }) {
  const [width, height] = [88, 18];
  const max = Math.max(1e-9, ...values.map((value) => value ?? 0));
  const step = width / Math.max(1, 29);
  const from = width - step * (values.length - 1);
  const points = values.map((value, at) => `${(from + at * step).toFixed(1)},${(height - 1 - ((value ?? 0) / max) * (height - 3)).toFixed(1)}`);
  return html`<svg class="spark" width=${width} height=${height} role="img" aria-label=${label}>
    ${values.length > 1 && html`<polyline points=${points.join(" ")} />`}
  </svg>`;
}

/** Share of a whole as a bar and a number. @param {{ share: number, text: string }} props */
export const Bar = ({ share, text }) => html`<span class="bar"><svg width="60" height="8" aria-hidden="true">
  <rect class="all" width="60" height="8" rx="2" /><rect class="part" width=${Math.max(0, Math.min(1, share)) * 60} height="8" rx="2" />
</svg><span>${text}</span></span>`;

// Messages: one polite live region for the whole page.

/** @typedef {{ id: number, text: string, tone: string }} Message */
const messages = signal(/** @type {Message[]} */ ([]));
let count = 0;

/** @param {string} text @param {"good" | "bad" | "warn"} [tone] */
export function notify(text, tone = "good") {
  const id = ++count;
  messages.value = [...messages.value, { id, text, tone }];
  // Errors stay until they are closed.
  if (tone === "good") setTimeout(() => dismiss(id), 6000);
}

/** @param {number} id */
const dismiss = (id) => (messages.value = messages.value.filter((one) => one.id !== id));

export const Messages = () => html`<div class="messages" role="status" aria-live="polite">
  ${messages.value.map((one) => html`<div class=${`message ${one.tone}`} key=${one.id}>
    <span>${one.text}</span>
    <button class="icon" aria-label=${t("app.close")} onClick=${() => dismiss(one.id)}>✕</button>
  </div>`)}
</div>`;

/**
 * A modal dialog. The browser keeps the focus inside and returns it.
 * @param {{ title: string, close: () => void, children: any, actions?: any, wide?: boolean }} props
 */
export function Dialog({ title, close, children, actions, wide }) {
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useLayoutEffect(() => {
    const dialog = ref.current;
    if (dialog && !dialog.open) dialog.showModal();
    return () => dialog?.close();
  }, []);
  const onCancel = (/** @type {Event} */ event) => {
    event.preventDefault();
    close();
  };
  return html`<dialog ref=${ref} class=${wide ? "wide" : ""} aria-labelledby=${id} onCancel=${onCancel}>
    <header><h2 id=${id}>${title}</h2><button class="icon" aria-label=${t("app.close")} onClick=${close}>✕</button></header>
    <div class="content" tabindex="0" role="group" aria-labelledby=${id}>${children}</div>
    <footer>${actions}</footer>
  </dialog>`;
}

/**
 * The result of an asynchronous function, and a function that calls it again.
 * @template T
 * @param {() => Promise<T>} load
 * @param {unknown[]} keys
 * @returns {{ data?: T, error?: any, reload: () => void }}
 */
export function useLoad(load, keys) {
  const [state, setState] = useState(/** @type {{ data?: T, error?: any }} */ ({}));
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let isOver = false;
    load().then(
      (data) => !isOver && setState({ data }),
      (error) => !isOver && setState((before) => ({ ...before, error })),
    );
    return () => {
      isOver = true;
    };
  }, [...keys, turn]);
  return { ...state, reload: () => setTurn((turn) => turn + 1) };
}

/** @param {{ of: { data?: any, error?: any, reload: () => void }, children: (data: any) => any }} props */
export const Loaded = ({ of, children }) =>
  of.data !== undefined ? children(of.data) : of.error ? html`<${Failure} error=${of.error} retry=${of.reload} />` : html`<${Loading} />`;

/** A table of few rows. @param {{ head: any[], rows: any[][], label: string, numeric?: number[], empty?: string }} props */
export function Grid({ head, rows, label, numeric = [], empty }) {
  if (!rows.length) return html`<${Empty}>${empty ?? t("app.nothing")}<//>`;
  const kind = (/** @type {number} */ at) => (numeric.includes(at) ? "number" : "");
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr>${head.map((cell, at) => html`<th scope="col" class=${kind(at)}>${cell}</th>`)}</tr></thead>
    <tbody>${rows.map((row, key) => html`<tr key=${key}>${row.map((cell, at) => html`<td class=${kind(at)}>${cell}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** @param {{ tabs: [string, any][], value: string, change: (to: string) => void, label: string }} props */
export function Tabs({ tabs, value, change, label }) {
  const move = (/** @type {KeyboardEvent} */ event) => {
    const at = tabs.findIndex(([name]) => name === value);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (!next) return;
    change(next[0]);
    const list = /** @type {HTMLElement} */ (event.currentTarget);
    requestAnimationFrame(() => /** @type {HTMLElement | null} */ (list.querySelector("[aria-selected=true]"))?.focus());
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${tabs.map(([name, text]) => html`<button role="tab" key=${name} aria-selected=${name === value} tabindex=${name === value ? 0 : -1} onClick=${() => change(name)}>${text}</button>`)}
  </div>`;
}

/** @param {{ text: string }} props */
export function Copy({ text }) {
  const copy = () => navigator.clipboard.writeText(text).then(() => notify(t("app.copied")), () => notify(t("app.copy_failed"), "bad"));
  return html`<button class="quiet" onClick=${copy}>${t("app.copy")}</button>`;
}

/** @param {number} count @param {string} key */
export const counted = (count, key) => t(count === 1 ? `${key}.one` : `${key}.many`, { count: number(count) });
