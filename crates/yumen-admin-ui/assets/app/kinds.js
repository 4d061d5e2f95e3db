// The kinds of objects: columns, addresses and first values, which no schema describes.

/**
 * @typedef {{ singular: string, group: "traffic" | "clients" | "node", columns: string[], idMember?: string,
 *   isHttp?: boolean, fixedId?: boolean, merges?: boolean, noPlan?: boolean, start?: Record<string, unknown> }} KindView
 * `merges`: an update sends the changes only, since the node never returns all members.
 */

/** @type {Record<string, KindView>} */
export const KINDS = {
  routes: {
    singular: "route",
    group: "traffic",
    columns: ["match", "methods", "target", "plugins", "labels"],
    start: { uri: "/", upstream: { type: "roundrobin", nodes: { "127.0.0.1:8080": 1 } } },
  },
  services: {
    singular: "service",
    group: "traffic",
    columns: ["hosts", "target", "plugins", "labels"],
    start: { upstream: { type: "roundrobin", nodes: { "127.0.0.1:8080": 1 } } },
  },
  upstreams: {
    singular: "upstream",
    group: "traffic",
    columns: ["type", "nodes", "labels"],
    start: { type: "roundrobin", nodes: { "127.0.0.1:8080": 1 } },
  },
  stream_routes: {
    singular: "stream_route",
    group: "traffic",
    columns: ["server_port", "sni", "target", "plugins", "labels"],
    start: { server_port: 9100, upstream: { type: "roundrobin", nodes: { "127.0.0.1:8080": 1 } } },
  },
  global_rules: { singular: "global_rule", group: "traffic", columns: ["plugins", "labels"], start: { plugins: {} } },
  plugin_configs: { singular: "plugin_config", group: "traffic", columns: ["plugins", "labels"], start: { plugins: {} } },
  ssls: {
    singular: "ssl",
    group: "traffic",
    columns: ["snis", "expiry", "labels"],
    merges: true,
    noPlan: true,
    start: { snis: ["example.com"], cert: "", key: "" },
  },
  protos: { singular: "proto", group: "traffic", columns: ["labels"], start: { content: 'syntax = "proto3";\n' } },
  consumers: {
    singular: "consumer",
    group: "clients",
    columns: ["group_id", "plugins", "labels"],
    idMember: "username",
    start: { username: "" },
  },
  credentials: { singular: "credential", group: "clients", columns: ["plugins", "labels"], fixedId: true, noPlan: true, start: { plugins: { "key-auth": { key: "" } } } },
  consumer_groups: { singular: "consumer_group", group: "clients", columns: ["plugins", "labels"], start: { plugins: {} } },
  plugin_metadata: { singular: "plugin_metadata", group: "node", columns: [], fixedId: true, start: {} },
  secrets: { singular: "secret", group: "node", columns: [], fixedId: true, start: {} },
  listeners: { singular: "listener", group: "node", columns: ["address", "protocol", "state"], start: { name: "", address: "127.0.0.1:9081", protocol: "http" } },
  scopes: { singular: "scope", group: "node", columns: ["listeners", "hosts"], start: { name: "", listeners: [] } },
  tests: { singular: "tests", group: "node", columns: [], start: { name: "", request: { url: "/" }, expect: {} } },
};

/** Paths and hosts of a route in one line. @param {Record<string, any>} row */
export function matchText(row) {
  const hosts = row.hosts ?? (row.host ? [row.host] : []);
  const uris = row.uris ?? (row.uri ? [row.uri] : []);
  const first = uris[0] ?? "";
  const more = uris.length > 1 ? ` +${uris.length - 1}` : "";
  const host = hosts.length ? `${hosts[0]}${hosts.length > 1 ? ` +${hosts.length - 1}` : ""}` : "";
  return `${host}${first}${more}`;
}

/** The origin of an object that a controller wrote, whose id contains `!`. @param {Record<string, any>} row */
export const originOf = (row) => (String(row["id"] ?? "").includes("!") ? row["labels"]?.origin : undefined);
