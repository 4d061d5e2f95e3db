// Ports, waits, requests, certificates and gateways of journeys, shared by `dashboard` and `counterparts/oidc`.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { createServer } from "node:net";
import { join } from "node:path";

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

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
    await pause(50);
  }
  throw new Error(`${state}: not within ${seconds} s${last ? `: ${last.message}` : ""}`);
}

/** Status, fields and text of a response; redirects are not followed. */
export function send(port, path, { method = "GET", headers = {}, body, agent } = {}) {
  return new Promise((resolve, reject) => {
    const sent = request({ host: "127.0.0.1", port, path, method, headers, agent }, (response) => {
      let text = "";
      response.on("data", (data) => (text += data));
      response.on("end", () => resolve({ status: response.statusCode, fields: response.headers, text }));
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

/** A self-signed certificate and its key; the name is as in a subjectAltName: `DNS:localhost`. */
export function certificate(folder, name) {
  const [cert, key] = ["cert.pem", "key.pem"].map((file) => join(folder, file));
  const subject = ["-subj", `/CN=${name.replace(/^\w+:/, "")}`, "-addext", `subjectAltName=${name}`];
  execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "90", "-keyout", key, "-out", cert, ...subject], { stdio: "ignore" });
  return { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") };
}

/** Starts a process whose output goes into `FOLDER/NAME.log`. */
export function spawnLogged(folder, name, command, args) {
  const log = openSync(join(folder, `${name}.log`), "a");
  return spawn(command, args, { stdio: ["ignore", log, log] });
}

/**
 * Starts a gateway, which keeps its files and its log below `FOLDER/NAME`, and waits until it is ready. `node` makes its settings from
 * its ports; resources, if given, are in the standalone format. `onSpawn` gets the process before it is ready.
 */
export async function startGateway(binary, folder, { name = "gateway", node = () => ({}), resources, args = [], port, onSpawn = () => {} } = {}) {
  const [http, admin, status] = [port ?? (await freePort()), await freePort(), await freePort()];
  const own = join(folder, name);
  mkdirSync(own);
  const settings = node({ http, admin, status });
  const config = {
    ...settings,
    listen: [{ address: `127.0.0.1:${http}` }],
    admin: { ...settings.admin, listen: `127.0.0.1:${admin}` },
    status: { listen: `127.0.0.1:${status}` },
    store: { data_dir: join(own, "data") },
  };
  const [configFile, resourceFile] = ["yumen.yaml", "resources.yaml"].map((file) => join(own, file));
  // JSON is YAML.
  writeFileSync(configFile, JSON.stringify(config));
  if (resources) writeFileSync(resourceFile, `${JSON.stringify(resources)}\n#END\n`);
  const child = spawnLogged(folder, name, binary, ["run", "--config", configFile, ...(resources ? ["--file", resourceFile] : []), ...args]);
  onSpawn(child);
  try {
    await eventually("the gateway starts", async () => child.exitCode === null && (await send(status, "/status/ready")).status === 200, 60);
  } catch (error) {
    throw new Error(`${error.message}\n${readFileSync(join(folder, `${name}.log`), "utf8")}`);
  }
  return { child, port: http, admin, status, url: `http://127.0.0.1:${http}` };
}
