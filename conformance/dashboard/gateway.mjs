// A gateway and its upstream for the journeys: processes, ports, files, requests. `stop` ends both processes.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { startProvider } from "./provider.mjs";

export const ADMIN_KEY = "0123456789abcdef-admin";
export const VIEWER_KEY = "0123456789abcdef-viewer";

const freePort = () =>
  new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

/** Waits for a state. */
export async function eventually(state, check, seconds = 30) {
  const end = Date.now() + seconds * 1000;
  let last;
  while (Date.now() < end) {
    try {
      const value = await check();
      if (value) return value;
    } catch (error) {
      last = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${state}: not within ${seconds} s${last ? `: ${last.message}` : ""}`);
}

export async function start(binary) {
  const folder = mkdtempSync(join(tmpdir(), "yumen-dashboard-"));
  const provider = await startProvider();
  const [http, admin, status, upstream, dead] = await Promise.all([0, 0, 0, 0, 0].map(freePort));
  writeFileSync(
    join(folder, "yumen.yaml"),
    `listen: [{ address: "127.0.0.1:${http}" }]
admin:
  listen: "127.0.0.1:${admin}"
  keys: [{ name: ada, key: ${ADMIN_KEY} }, { name: vic, key: ${VIEWER_KEY}, role: viewer }]
  dashboard:
    openid:
      issuer: ${provider.url}
      client_id: dashboard
      redirect_uri: http://127.0.0.1:${admin}/ui/callback
      roles: [{ claim: groups, values: [operators], role: admin }]
status: { listen: "127.0.0.1:${status}" }
store: { data_dir: ${join(folder, "data")} }
observe: { list_recent_requests: true }
`,
  );
  const log = [];
  const children = [
    ["run", "--config", join(folder, "yumen.yaml")],
    ["echo", `127.0.0.1:${upstream}`],
  ].map((args) => {
    const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => log.push(String(data)));
    return child;
  });
  const url = `http://127.0.0.1:${admin}`;

  /** A call of the Admin API with a key. */
  async function api(method, path, body, headers = {}) {
    const response = await fetch(url + path, { method, headers: { "X-API-KEY": ADMIN_KEY, ...headers }, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  /** The status of a request through the gateway. */
  const send = (path, { host = "localhost", ...headers } = {}) =>
    new Promise((resolve, reject) => {
      const sent = request({ host: "127.0.0.1", port: http, path, headers: { Host: host, ...headers } }, (response) => {
        response.resume();
        response.on("end", () => resolve(response.statusCode));
      });
      sent.on("error", reject);
      sent.end();
    });

  /** A certificate and its key, as members of an object. */
  function certificate(name) {
    const [cert, key] = ["cert.pem", "key.pem"].map((file) => join(folder, file));
    execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "90", "-subj", `/CN=${name}`, "-addext", `subjectAltName=DNS:${name}`], { stdio: "ignore" });
    return { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") };
  }

  function stop() {
    provider.stop();
    for (const child of children) child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  }

  try {
    await eventually("the gateway starts", () => fetch(`http://127.0.0.1:${status}/status/ready`).then((response) => response.ok), 60);
  } catch (error) {
    stop();
    throw new Error(`${error.message}\n${log.join("")}`);
  }
  return { url, api, send, certificate, stop, upstream, dead, log, provider };
}
