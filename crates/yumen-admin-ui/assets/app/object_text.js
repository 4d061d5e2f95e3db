// The text of an object in JSON or YAML, and its value. The node converts YAML, so that no second reader decides what it
// means.

import { html, useEffect, useRef, useState } from "./core.js";
import { call } from "./api.js";
import { t } from "./i18n.js";
import { store, stored } from "./settings.js";

/** @typedef {"json" | "yaml"} TextForm */
/**
 * @typedef {{ text: string, json: string | null, value: any, error?: string, line?: number, isPending: boolean }} ObjectText
 * `json` is the text for the node, null while there is none; `value` is the last valid one.
 */

export const pretty = (/** @type {unknown} */ value) => `${JSON.stringify(value, null, 2)}\n`;

/** @param {string} text @param {TextForm} to @param {AbortSignal} [signal] @returns {Promise<string>} */
export const convert = async (text, to, signal) => (await call(`/yumen/v1/convert?to=${to}`, { method: "POST", text, ...(signal && { signal }) })).data.text;

/** The form that the user chose last. @returns {TextForm} */
export const preferredForm = () => (stored("form") === "yaml" ? "yaml" : "json");

/** @param {{ form: TextForm, label: any, change: (to: TextForm) => void, isDisabled?: boolean }} props */
export function FormChoice({ form, label, change, isDisabled }) {
  const choose = (/** @type {any} */ event) => {
    store("form", event.currentTarget.value);
    change(event.currentTarget.value);
  };
  return html`<label class="form-choice">${label} <select value=${form} disabled=${isDisabled} onChange=${choose}><option value="json">JSON</option><option value="yaml">YAML</option></select></label>`;
}

/** @param {string} text @param {any} before @returns {ObjectText} */
function ofJson(text, before) {
  try {
    const value = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return { text, json: text, value, isPending: false };
    return { text, json: null, value: before, error: t("edit.no_object"), isPending: false };
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    const position = /position (\d+)/.exec(message);
    const line = position ? text.slice(0, Number(position[1])).split("\n").length : undefined;
    return { text, json: null, value: before, error: message, ...(line !== undefined && { line }), isPending: false };
  }
}

const TYPING_PAUSE_MS = 200;

/** @param {string} first the stored object in JSON */
export function useObjectText(first) {
  const [form, setForm] = useState(/** @type {TextForm} */ ("json"));
  const [state, setState] = useState(() => ofJson(first, undefined));
  const turn = useRef({ abort: new AbortController(), timer: /** @type {any} */ (undefined) });
  /** Ends what an earlier change has begun. */
  const begin = () => {
    turn.current.abort.abort();
    clearTimeout(turn.current.timer);
    turn.current.abort = new AbortController();
    return turn.current.abort.signal;
  };
  useEffect(() => {
    if (preferredForm() === "yaml") void switchTo("yaml");
    return () => void begin();
  }, []);

  /** Shows an object that is valid. @param {string} json @param {any} value @param {TextForm} to */
  async function show(json, value, to) {
    const signal = begin();
    if (to === "json") return setState({ text: json, json, value, isPending: false });
    setState((before) => ({ text: before.text, json, value, isPending: true }));
    try {
      const text = await convert(json, "yaml", signal);
      if (!signal.aborted) setState({ text, json, value, isPending: false });
    } catch (error) {
      if (signal.aborted) return;
      // The object has no form in YAML, or the node does not respond: JSON shows every object.
      setForm("json");
      setState({ text: json, json, value, isPending: false });
    }
  }

  /** @param {TextForm} to */
  async function switchTo(to) {
    if (state.json === null) return;
    setForm(to);
    await show(to === "json" && form === "yaml" ? state.json : pretty(state.value), state.value, to);
  }

  /** The text as typed. @param {string} text */
  function type(text) {
    const signal = begin();
    if (form === "json") return setState((before) => ofJson(text, before.value));
    setState((before) => ({ ...before, text, json: null, isPending: true }));
    turn.current.timer = setTimeout(async () => {
      try {
        const json = await convert(text, "json", signal);
        if (!signal.aborted) setState({ text, json, value: JSON.parse(json), isPending: false });
      } catch (error) {
        if (signal.aborted) return;
        const { message, body } = /** @type {any} */ (error);
        setState((before) => ({ text, json: null, value: before.value, error: message, ...(body?.line && { line: body.line }), isPending: false }));
      }
    }, TYPING_PAUSE_MS);
  }

  return {
    ...state,
    form,
    type,
    /** A value of the form. @param {any} value */
    setValue: (value) => void show(pretty(value), value, form),
    /** The stored object again. */
    reset: () => void show(first, JSON.parse(first), form),
    switchTo,
    isChanged: form === "json" ? state.text !== first : state.json === null || JSON.stringify(JSON.parse(state.json)) !== JSON.stringify(JSON.parse(first)),
  };
}
