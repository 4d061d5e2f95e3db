// A gateway and its upstream for the journeys. `stop` ends both processes.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import * as processes from "../processes.mjs";
import { startProvider } from "./provider.mjs";

export { eventually } from "../processes.mjs";

export const ADMIN_KEY = "0123456789abcdef-admin";
export const VIEWER_KEY = "0123456789abcdef-viewer";

export async function start(binary) {
  const folder = mkdtempSync(join(tmpdir(), "yumen-dashboard-"));
  const provider = await startProvider();
  const [upstream, dead] = [await processes.freePort(), await processes.freePort()];
  const children = [processes.spawnLogged(folder, "upstream", binary, ["echo", `127.0.0.1:${upstream}`])];

  function stop() {
    provider.stop();
    for (const child of children) child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  }

  const node = ({ admin }) => ({
    admin: {
      keys: [{ name: "ada", key: ADMIN_KEY }, { name: "vic", key: VIEWER_KEY, role: "viewer" }],
      dashboard: {
        openid: {
          issuer: provider.url,
          client_id: "dashboard",
          redirect_uri: `http://127.0.0.1:${admin}/ui/callback`,
          roles: [{ claim: "groups", values: ["operators"], role: "admin" }],
        },
      },
    },
    observe: { list_recent_requests: true },
  });
  const gateway = await processes.startGateway(binary, folder, { node, onSpawn: (child) => children.push(child) }).catch((error) => {
    stop();
    throw error;
  });
  const url = `http://127.0.0.1:${gateway.admin}`;

  /** A call of the Admin API with a key. */
  async function api(method, path, body, headers = {}) {
    const response = await fetch(url + path, { method, headers: { "X-API-KEY": ADMIN_KEY, ...headers }, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  /** The status of a request through the gateway. */
  const send = async (path, { host = "localhost", ...headers } = {}) => (await processes.send(gateway.port, path, { headers: { Host: host, ...headers } })).status;

  /** A certificate and its key, as members of an object. */
  const certificate = (name) => processes.certificate(folder, `DNS:${name}`);

  return { url, api, send, certificate, stop, upstream, dead, provider };
}
