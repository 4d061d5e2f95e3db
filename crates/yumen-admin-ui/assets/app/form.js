// A form for any JSON schema of the node. Every change makes a new value; members that the schema does not describe stay.

import { html, useEffect, useId, useState } from "./core.js";
import { get } from "./api.js";
import { t } from "./i18n.js";

/** @typedef {Record<string, any>} Schema */
/** @typedef {{ schema: Schema, value: any, change: (value: any) => void, name: string, isRequired?: boolean, about?: string, depth?: number, isReadOnly?: boolean }} FieldProps */

/** The form control of a schema. @param {Schema | boolean | undefined} schema */
function formOf(schema) {
  if (!schema || schema === true) return "any";
  if (schema.enum) return "enum";
  // Beside properties, alternatives are conditions on them.
  if ((schema.oneOf || schema.anyOf) && !schema.properties && !schema.type) return "choice";
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === "object" || schema.properties) return schema.properties && Object.keys(schema.properties).length ? "object" : "map";
  if (type === "array") return schema.items?.enum ? "set" : "list";
  if (type === "string" || type === "boolean" || type === "integer" || type === "number") return type;
  return "any";
}

/** Whether a value has the type of a schema. @param {Schema} schema @param {any} value */
function fits(schema, value) {
  if (value === undefined) return false;
  if (schema.enum) return schema.enum.includes(value);
  const type = Array.isArray(value) ? "array" : value === null ? "null" : typeof value;
  const form = formOf(schema);
  if (form === "any") return true;
  if (form === "choice") return (schema.oneOf ?? schema.anyOf).some((/** @type {Schema} */ one) => fits(one, value));
  if (form === "list" || form === "set") return type === "array";
  if (form === "object" || form === "map") return type === "object";
  if (form === "integer") return Number.isInteger(value);
  return type === form;
}

/** A first value. @param {Schema} schema */
function blank(schema) {
  if (schema.default !== undefined && schema.default !== null) return schema.default;
  switch (formOf(schema)) {
    case "enum": return schema.enum[0];
    case "choice": return blank((schema.oneOf ?? schema.anyOf)[0]);
    case "object": return Object.fromEntries((schema.required ?? []).filter((/** @type {string} */ name) => schema.properties[name]).map((/** @type {string} */ name) => [name, blank(schema.properties[name])]));
    case "map": return {};
    case "list": case "set": return [];
    case "boolean": return true;
    case "integer": case "number": return schema.minimum ?? (schema.exclusiveMinimum !== undefined ? schema.exclusiveMinimum + 1 : 0);
    case "string": return "";
    default: return null;
  }
}

/** @param {FieldProps} props */
export function Field(props) {
  const { schema, name } = props;
  // An inline upstream has the schema of its kind.
  if (name === "upstream" && ["any", "map"].includes(formOf(schema))) return html`<${ReferredField} ...${props} path="/apisix/admin/schema/upstream" />`;
  // The settings of plugins have schemas of their own.
  if (name === "plugins" && formOf(schema) === "map") return html`<${PluginsField} ...${props} />`;
  switch (formOf(schema)) {
    case "object": return html`<${ObjectField} ...${props} />`;
    case "map": return html`<${MapField} ...${props} />`;
    case "list": return html`<${ListField} ...${props} />`;
    case "set": return html`<${SetField} ...${props} />`;
    case "choice": return html`<${ChoiceField} ...${props} />`;
    default: return html`<${ScalarField} ...${props} />`;
  }
}

/** @param {FieldProps} props */
const About = ({ schema, about }) => {
  const text = about ?? schema.description;
  return text ? html`<p class="hint">${withCode(text)}</p>` : "";
};

/** A text with names between backticks. @param {string} text */
const withCode = (text) => text.replace(/\n/g, " ").split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));

/** @param {FieldProps & { path: string }} props */
function ReferredField({ path, ...props }) {
  const [schema, setSchema] = useState(/** @type {Schema | null} */ (null));
  useEffect(() => void schemaAt(path).then(({ properties: { id, create_time, update_time, ...properties }, ...rest }) => setSchema({ ...rest, properties, description: props.schema.description }), () => setSchema({ type: "object" })), [path]);
  return schema && html`<${Field} ...${props} schema=${schema} />`;
}

const LONG = /^(content|cert|key|ca|client_cert|client_key|script|body|body_schema|header_schema|response_example|.*_public_key|.*_private_key)$/;

/** @param {FieldProps} props */
function ScalarField({ schema, value, change, name, isRequired, about, isReadOnly }) {
  const id = useId();
  const form = formOf(schema);
  const placeholder = schema.default === undefined || schema.default === null ? "" : t("form.default", { value: String(schema.default) });
  let input;
  if (form === "enum" || form === "boolean") {
    const options = form === "enum" ? schema.enum : [true, false];
    const pick = (/** @type {any} */ event) => change(event.currentTarget.value === "" ? undefined : options[Number(event.currentTarget.value)]);
    const at = options.indexOf(value);
    input = html`<select id=${id} value=${at < 0 ? "" : String(at)} onChange=${pick} disabled=${isReadOnly}>
      ${(!isRequired || at < 0) && html`<option value="">${placeholder || "–"}</option>`}
      ${options.map((/** @type {any} */ one, /** @type {number} */ index) => html`<option key=${index} value=${String(index)}>${String(one)}</option>`)}
    </select>`;
  } else if (form === "integer" || form === "number") {
    const type = (/** @type {any} */ event) => {
      const text = event.currentTarget.value;
      change(text === "" ? undefined : Number(text));
    };
    input = html`<input id=${id} type="number" step=${form === "integer" ? 1 : "any"} min=${schema.minimum} max=${schema.maximum} value=${value ?? ""} placeholder=${placeholder} onInput=${type} readonly=${isReadOnly} />`;
  } else if (form === "string") {
    const type = (/** @type {any} */ event) => change(event.currentTarget.value === "" && !isRequired ? undefined : event.currentTarget.value);
    const isLong = LONG.test(name) && (schema.maxLength === undefined || schema.maxLength > 256) && (String(value ?? "").length > 60 || String(value ?? "").includes("\n") || /cert|content|^key$|body|script/.test(name) && (schema.minLength ?? 0) > 64);
    input = isLong ? html`<textarea id=${id} rows="5" class="mono" spellcheck="false" value=${value ?? ""} onInput=${type} readonly=${isReadOnly}></textarea>`
      : html`<input id=${id} value=${value ?? ""} placeholder=${placeholder} onInput=${type} spellcheck="false" autocomplete="off" readonly=${isReadOnly} />`;
  } else {
    input = html`<${AnyInput} id=${id} value=${value} change=${change} isReadOnly=${isReadOnly} />`;
  }
  return html`<div class="member"><label for=${id}>${name}${isRequired ? html`<span class="required" title=${t("form.required")}>*</span>` : ""}</label><div>${input}<${About} schema=${schema} about=${about} ...${{ value, change, name }} /></div></div>`;
}

/** A value without a known form, as JSON. @param {{ id: string, value: any, change: (value: any) => void, isReadOnly?: boolean }} props */
function AnyInput({ id, value, change, isReadOnly }) {
  const shown = value === undefined ? "" : JSON.stringify(value);
  const [text, setText] = useState(shown);
  const [isWrong, setWrong] = useState(false);
  useEffect(() => {
    if (!isWrong) setText(shown);
  }, [shown]);
  const type = (/** @type {any} */ event) => {
    setText(event.currentTarget.value);
    try {
      change(event.currentTarget.value.trim() === "" ? undefined : JSON.parse(event.currentTarget.value));
      setWrong(false);
    } catch {
      setWrong(true);
    }
  };
  return html`<input id=${id} class="mono" value=${text} onInput=${type} spellcheck="false" aria-invalid=${isWrong ? "true" : undefined} placeholder="JSON" readonly=${isReadOnly} />${isWrong && html`<p class="error">${t("form.not_json")}</p>`}`;
}

/** @param {FieldProps} props */
function SetField({ schema, value, change, name, about, isReadOnly }) {
  const chosen = Array.isArray(value) ? value : [];
  const toggle = (/** @type {any} */ one) => {
    const next = chosen.includes(one) ? chosen.filter((other) => other !== one) : [...chosen, one];
    change(next.length ? next : undefined);
  };
  return html`<fieldset class="member"><legend>${name}</legend><div><div class="checks">${schema.items.enum.map((/** @type {any} */ one) => html`<label key=${one}><input type="checkbox" checked=${chosen.includes(one)} onChange=${() => toggle(one)} disabled=${isReadOnly} /> ${one}</label>`)}</div><${About} schema=${schema} about=${about} ...${{ value, change, name }} /></div></fieldset>`;
}

/** @param {FieldProps} props */
function ListField({ schema, value, change, name, about, depth = 0, isReadOnly }) {
  const list = Array.isArray(value) ? value : [];
  const items = schema.items && schema.items !== true ? schema.items : {};
  const set = (/** @type {number} */ at, /** @type {any} */ to) => change(list.map((one, index) => (index === at ? (to === undefined ? blank(items) : to) : one)));
  const remove = (/** @type {number} */ at) => change(list.length > 1 ? list.filter((_, index) => index !== at) : undefined);
  return html`<fieldset class="member"><legend>${name}</legend><div>
    ${list.map((one, at) => html`<div class="item" key=${at}><${Field} schema=${items} value=${one} change=${(/** @type {any} */ to) => set(at, to)} name=${String(at + 1)} isRequired depth=${depth + 1} isReadOnly=${isReadOnly} />
      ${!isReadOnly && html`<button type="button" class="icon" aria-label=${t("form.remove", { name: `${name} ${at + 1}` })} onClick=${() => remove(at)}>✕</button>`}</div>`)}
    ${!isReadOnly && html`<button type="button" class="quiet" onClick=${() => change([...list, blank(items)])}>+ ${t("form.add")}<span class="only-read"> ${name}</span></button>`}
    <${About} schema=${schema} about=${about} ...${{ value, change, name }} />
  </div></fieldset>`;
}

/** @param {FieldProps} props */
function MapField({ schema, value, change, name, about, depth = 0, isReadOnly }) {
  const entries = Object.entries(value && typeof value === "object" && !Array.isArray(value) ? value : {});
  const patterns = Object.values(schema.patternProperties ?? {});
  const items = patterns[0] ?? (typeof schema.additionalProperties === "object" ? schema.additionalProperties : {});
  const write = (/** @type {[string, any][]} */ list) => change(list.length || !entries.length ? Object.fromEntries(list) : undefined);
  const rename = (/** @type {number} */ at, /** @type {string} */ to) => {
    if (entries.some(([other], index) => index !== at && other === to)) return;
    write(entries.map((entry, index) => (index === at ? [to, entry[1]] : entry)));
  };
  const add = () => {
    let fresh = "";
    for (let count = 1; entries.some(([other]) => other === fresh); count += 1) fresh = `name${count}`;
    write([...entries, [fresh, blank(items)]]);
  };
  return html`<fieldset class="member"><legend>${name}</legend><div>
    ${entries.map(([key, one], at) => html`<div class="item pair-item" key=${at}>
      <input class="mono" aria-label=${t("form.key", { name })} value=${key} onChange=${(/** @type {any} */ event) => rename(at, event.currentTarget.value)} readonly=${isReadOnly} spellcheck="false" />
      <${Field} schema=${items} value=${one} change=${(/** @type {any} */ to) => write(entries.map((entry, index) => (index === at ? [key, to === undefined ? blank(items) : to] : entry)))} name=${key || t("form.value")} isRequired depth=${depth + 1} isReadOnly=${isReadOnly} />
      ${!isReadOnly && html`<button type="button" class="icon" aria-label=${t("form.remove", { name: key })} onClick=${() => write(entries.filter((_, index) => index !== at))}>✕</button>`}
    </div>`)}
    ${!isReadOnly && html`<button type="button" class="quiet" onClick=${add}>+ ${t("form.add")}<span class="only-read"> ${name}</span></button>`}
    <${About} schema=${schema} about=${about} ...${{ value, change, name }} />
  </div></fieldset>`;
}

/** @param {FieldProps} props */
function ChoiceField(props) {
  const { schema, value, change, name, isReadOnly } = props;
  const branches = /** @type {Schema[]} */ (schema.oneOf ?? schema.anyOf);
  const usable = branches.filter((one) => one.type || one.properties || one.enum || one.oneOf || one.anyOf);
  // Conditions on other members, and alternatives of one type such as forms of an id, are no choice.
  const forms = new Map(usable.map((one) => [formOf(one), one]));
  const about = props.about ?? schema.description;
  const only = [...forms.values()][0];
  if (!only) return html`<${ScalarField} ...${props} schema=${{ description: about }} />`;
  const current = [...forms.values()].find((one) => fits(one, value)) ?? only;
  const picker = forms.size > 1 && !isReadOnly && html`<label class="choice"><span class="only-read">${t("form.kind", { name })}</span><select value=${formOf(current)} onChange=${(/** @type {any} */ event) => change(blank(/** @type {Schema} */ (forms.get(event.currentTarget.value))))}>
    ${[...forms.keys()].map((form) => html`<option key=${form} value=${form}>${t(`form.${form}`)}</option>`)}</select></label>`;
  return html`<div class="chosen"><${Field} ...${props} schema=${{ ...current, description: about }} about=${about} />${picker}</div>`;
}

const HIDDEN = ["id", "create_time", "update_time"];
const FIRST = ["name", "desc", "uri", "uris", "host", "hosts", "methods", "upstream_id", "service_id", "upstream", "plugins"];

/** @param {FieldProps & { isRoot?: boolean }} props */
export function ObjectField({ schema, value, change, name, about, depth = 0, isRequired, isRoot, isReadOnly }) {
  const object = value && typeof value === "object" && !Array.isArray(value) ? value : {};
  const properties = /** @type {Record<string, Schema>} */ (schema.properties ?? {});
  const required = /** @type {string[]} */ (schema.required ?? []);
  const isShown = (/** @type {string} */ member) => object[member] !== undefined || required.includes(member);
  const rank = (/** @type {string} */ member) => (isRoot && FIRST.includes(member) ? FIRST.indexOf(member) : 100);
  const known = Object.keys(properties).filter((member) => !(isRoot && HIDDEN.includes(member)));
  const shown = known.filter(isShown).sort((a, b) => rank(a) - rank(b));
  const others = known.filter((member) => !isShown(member));
  const unknown = Object.keys(object).filter((member) => !(member in properties));
  const set = (/** @type {string} */ member, /** @type {any} */ to) => {
    const { [member]: _, ...rest } = object;
    // A member keeps its place in the text.
    change(to === undefined ? rest : member in object ? { ...object, [member]: to } : { ...rest, [member]: to });
  };
  const add = (/** @type {any} */ event) => {
    const member = event.currentTarget.value;
    event.currentTarget.value = "";
    if (member) set(member, blank(/** @type {Schema} */ (properties[member])));
  };
  const body = html`
    ${shown.map((member) => html`<div class="removable" key=${member}><${Field} schema=${properties[member]} value=${object[member]} change=${(/** @type {any} */ to) => set(member, to)} name=${member} isRequired=${required.includes(member)} depth=${depth + 1} isReadOnly=${isReadOnly} />
      ${!required.includes(member) && !isReadOnly && html`<button type="button" class="icon" aria-label=${t("form.remove", { name: member })} onClick=${() => set(member, undefined)}>✕</button>`}</div>`)}
    ${unknown.map((member) => html`<${ScalarField} key=${member} schema=${{}} value=${object[member]} change=${(/** @type {any} */ to) => set(member, to)} name=${member} about=${t("form.unknown")} isReadOnly=${isReadOnly} />`)}
    ${others.length > 0 && !isReadOnly && html`<label class="add"><span class="only-read">${t("form.add_setting", { name })}</span><select onChange=${add} value=""><option value="">+ ${t("form.setting")}</option>${others.map((member) => html`<option key=${member} value=${member}>${member}</option>`)}</select></label>`}`;
  if (isRoot) return html`<div class="object-form">${body}</div>`;
  return html`<details class="object-form" open=${depth < 3}><summary>${name}${isRequired ? html`<span class="required">*</span>` : ""}</summary>
    <${About} schema=${schema} about=${about} ...${{ value, change, name }} />${body}</details>`;
}

/** @type {Map<string, Promise<any>>} */
const schemas = new Map();

/** @param {string} path */
export function schemaAt(path) {
  let known = schemas.get(path);
  if (!known) {
    known = get(path);
    known.catch(() => schemas.delete(path));
    schemas.set(path, known);
  }
  return known;
}

/** The part of the configuration decides which schema of a plugin applies. */
export const pluginUse = { isConsumer: false, isStream: false };

/** @param {FieldProps} props */
function PluginsField({ schema, value, change, about, isReadOnly }) {
  const plugins = /** @type {Record<string, any>} */ (value && typeof value === "object" ? value : {});
  const [names, setNames] = useState(/** @type {string[]} */ ([]));
  useEffect(() => void schemaAt(`/apisix/admin/plugins/list${pluginUse.isStream ? "?subsystem=stream" : ""}`).then((list) => setNames([...list].sort()), () => {}), []);
  const set = (/** @type {string} */ name, /** @type {any} */ to) => change({ ...plugins, [name]: to ?? {} });
  const remove = (/** @type {string} */ name) => {
    const { [name]: _, ...rest } = plugins;
    change(Object.keys(rest).length ? rest : undefined);
  };
  const add = async (/** @type {any} */ event) => {
    const select = event.currentTarget;
    const name = select.value;
    select.value = "";
    if (!name) return;
    const found = await pluginSchema(name).catch(() => ({}));
    set(name, { ...blank(found) });
  };
  return html`<fieldset class="member plugins"><legend>plugins</legend><div>
    ${Object.entries(plugins).map(([name, settings]) => html`<div class="removable" key=${name}><${PluginField} name=${name} value=${settings} change=${(/** @type {any} */ to) => set(name, to)} isReadOnly=${isReadOnly} />
      ${!isReadOnly && html`<button type="button" class="icon" aria-label=${t("form.remove", { name })} onClick=${() => remove(name)}>✕</button>`}</div>`)}
    ${!isReadOnly && html`<label class="add"><span class="only-read">${t("form.add_plugin")}</span><select onChange=${add} value=""><option value="">+ ${t("form.plugin")}</option>${names.filter((name) => !(name in plugins)).map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>`}
    <${About} schema=${schema} about=${about} ...${{ value, change }} name="plugins" />
  </div></fieldset>`;
}

/** @param {string} name */
async function pluginSchema(name) {
  const path = `/apisix/admin/schema/plugins/${encodeURIComponent(name)}`;
  if (pluginUse.isConsumer) {
    const own = await schemaAt(`${path}?schema_type=consumer`).catch(() => null);
    if (own?.type) return own;
  }
  return schemaAt(pluginUse.isStream ? `${path}?subsystem=stream` : path);
}

/** @param {{ name: string, value: any, change: (value: any) => void, isReadOnly?: boolean }} props */
function PluginField({ name, value, change, isReadOnly }) {
  const [schema, setSchema] = useState(/** @type {Schema | null} */ (null));
  useEffect(() => void pluginSchema(name).then(setSchema, () => setSchema({})), [name]);
  if (!schema) return html`<p class="loading">${name}</p>`;
  return html`<${ObjectField} schema=${schema} value=${value} change=${change} name=${name} depth=${1} isReadOnly=${isReadOnly} />`;
}
