// The settings in force of a route: its own, and those of the objects it refers to. The order is that of the gateway: a
// route overrides its plugin configuration, which overrides the service; global rules run before all of them.

import { get, objectPath } from "./api.js";

/** @typedef {{ name: string, value: any, origin: string, overridden?: string[] }} Setting */
/** @typedef {{ plugin: string, settings: any, origin: string, overridden: string[], isGlobal: boolean }} PluginUse */

/** @param {string} kind @param {string | undefined} id */
async function referred(kind, id) {
  if (id === undefined) return null;
  try {
    return { origin: `${kind}/${id}`, value: (await get(objectPath(kind, String(id)))).value };
  } catch {
    // The problems of the route name a missing object.
    return null;
  }
}

const NOT_SETTINGS = ["id", "create_time", "update_time", "plugins", "name", "desc", "labels"];

/**
 * @param {string} origin such as `routes/1`
 * @param {any} object
 * @returns {Promise<{ settings: Setting[], plugins: PluginUse[] }>}
 */
export async function inForce(origin, object) {
  const service = await referred("services", object.service_id);
  const [shared, upstream, rules] = await Promise.all([
    referred("plugin_configs", object.plugin_config_id),
    referred("upstreams", object.upstream_id ?? (object.upstream ? undefined : service?.value.upstream_id)),
    get("/apisix/admin/global_rules").then((body) => body.list ?? [], () => []),
  ]);
  const layers = [{ origin, value: object }, shared, service].filter((one) => one !== null);
  return { settings: settingsOf(origin, object, service, upstream), plugins: [...globalPlugins(rules), ...pluginsOf(layers)] };
}

/** @param {string} origin @param {any} object @param {any} service @param {any} upstream @returns {Setting[]} */
function settingsOf(origin, object, service, upstream) {
  /** @type {Map<string, Setting>} */
  const settings = new Map();
  for (const layer of [{ origin, value: object }, service]) {
    for (const [name, value] of Object.entries(layer?.value ?? {})) {
      if (NOT_SETTINGS.includes(name)) continue;
      const known = settings.get(name);
      if (known) known.overridden = [...(known.overridden ?? []), layer.origin];
      else settings.set(name, { name, value, origin: layer.origin });
    }
  }
  if (upstream) settings.set("upstream", { name: "upstream", value: withoutIds(upstream.value), origin: upstream.origin });
  return [...settings.values()];
}

/** @param {any} value */
function withoutIds(value) {
  const { id, create_time, update_time, ...rest } = value;
  return rest;
}

/** @param {any[]} rules @returns {PluginUse[]} */
const globalPlugins = (rules) =>
  rules.flatMap((rule) =>
    Object.entries(rule.value.plugins ?? {}).map(([plugin, settings]) => ({
      plugin,
      settings,
      origin: `global_rules/${rule.value.id}`,
      overridden: [],
      isGlobal: true,
    })),
  );

/** @param {any[]} layers @returns {PluginUse[]} */
function pluginsOf(layers) {
  /** @type {Map<string, PluginUse>} */
  const uses = new Map();
  for (const { origin, value } of layers) {
    for (const [plugin, settings] of Object.entries(value.plugins ?? {})) {
      const known = uses.get(plugin);
      if (known) known.overridden.push(origin);
      else uses.set(plugin, { plugin, settings, origin, overridden: [], isGlobal: false });
    }
  }
  return [...uses.values()];
}
