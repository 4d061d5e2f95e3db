// Processes, ports and requests of the journeys. `stop` ends all of them.

import { writeFileSync } from "node:fs";
import { Agent, createServer, request } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { certificate, eventually, freePort, send, spawnLogged, startGateway } from "../../processes.mjs";

export { eventually, freePort, pause, send } from "../../processes.mjs";

const here = dirname(fileURLToPath(import.meta.url));

export function expect(condition, text) {
  if (!condition) throw new Error(text);
}

/** Requests at a steady rate until `end`, which returns statuses and latencies from the time at which each was due. */
export function load(port, path, rate, headers = {}) {
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  const statuses = {};
  const latencies = [];
  const pending = new Set();
  const begun = performance.now();
  let sent = 0;
  const timer = setInterval(() => {
    for (const due = Math.floor(((performance.now() - begun) * rate) / 1000); sent < due; sent += 1) {
      const at = begun + (sent * 1000) / rate;
      const fields = typeof headers === "function" ? headers() : headers;
      const one = send(port, path, { agent, headers: fields })
        .then((response) => response.status, (error) => error.code ?? error.message)
        .then((status) => {
          statuses[status] = (statuses[status] ?? 0) + 1;
          latencies.push(performance.now() - at);
          pending.delete(one);
        });
      pending.add(one);
    }
  }, 5);
  return {
    statuses,
    async end() {
      clearInterval(timer);
      await Promise.all(pending);
      agent.destroy();
      latencies.sort((a, b) => a - b);
      return { statuses, p99: latencies[Math.floor(latencies.length * 0.99)] ?? 0 };
    },
  };
}

export class World {
  constructor(binary, modules, folder) {
    Object.assign(this, { binary, modules, folder, children: [], servers: [], count: 0 });
  }

  /** A process whose output goes into a file. */
  spawn(name, command, args) {
    const child = spawnLogged(this.folder, name, command, args);
    this.children.push(child);
    return child;
  }

  /** An upstream that answers with target and fields of the request. */
  async upstream() {
    const server = createServer({ maxHeaderSize: 256 * 1024 }, (incoming, response) => {
      response.setHeader("Content-Type", "application/json");
      response.end(JSON.stringify({ target: incoming.url, fields: incoming.headers }));
    });
    const port = await freePort();
    server.listen(port, "127.0.0.1");
    this.servers.push(server);
    return port;
  }

  /** Ports of a provider that is not started. */
  async providerAt(clients) {
    const [port, control] = [await freePort(), await freePort()];
    const file = join(this.folder, `provider-${port}.json`);
    writeFileSync(file, JSON.stringify({ port, control, clients }));
    return new RunningProvider(this, { port, control, file });
  }

  async gateway(routes, { node = {}, port } = {}) {
    this.count += 1;
    return startGateway(this.binary, this.folder, {
      name: `gateway-${this.count}`, node: () => node, resources: { routes }, args: ["--workers", "2"], port, onSpawn: (child) => this.children.push(child),
    });
  }

  /** A load balancer that ends TLS and sends each request to the next gateway. */
  async balancer(ports, port) {
    let turn = 0;
    const server = createTlsServer(certificate(this.folder, "IP:127.0.0.1"), (incoming, response) => {
      turn += 1;
      const headers = { ...incoming.headers, "x-forwarded-proto": "https", "x-forwarded-for": "192.0.2.1" };
      const onward = request({ host: "127.0.0.1", port: ports[turn % ports.length], path: incoming.url, method: incoming.method, headers }, (answer) => {
        response.writeHead(answer.statusCode, answer.rawHeaders);
        answer.pipe(response);
      });
      onward.on("error", () => response.destroy());
      incoming.pipe(onward);
    });
    server.listen(port, "127.0.0.1");
    this.servers.push(server);
  }

  stop() {
    for (const child of this.children) child.kill("SIGKILL");
    for (const server of this.servers) server.closeAllConnections();
    for (const server of this.servers) server.close();
  }
}

/** A provider in a process of its own. */
class RunningProvider {
  constructor(world, place) {
    Object.assign(this, place, { world, url: `http://localhost:${place.port}` });
    this.discovery = `${this.url}/.well-known/openid-configuration`;
  }

  async start() {
    this.child = this.world.spawn(`provider-${this.port}`, process.execPath, [join(here, "provider.mjs"), this.world.modules, this.file]);
    await eventually("the provider starts", () => fetch(this.discovery).then((response) => response.ok), 30);
    return this;
  }

  freeze() {
    this.child.kill("SIGSTOP");
  }

  thaw() {
    this.child.kill("SIGCONT");
  }

  async kill() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGKILL");
    await ended;
  }

  /** Changes the state of the provider, and returns its counts. */
  async set(change = {}) {
    const response = await fetch(`http://127.0.0.1:${this.control}/`, { method: "POST", body: JSON.stringify(change) });
    return response.json();
  }

  /** A token of a client for itself. */
  async token(client, secret, parameters = {}) {
    const body = new URLSearchParams({ grant_type: "client_credentials", ...parameters });
    const headers = { Authorization: `Basic ${Buffer.from(`${client}:${secret}`).toString("base64")}` };
    const response = await fetch(`${this.url}/token`, { method: "POST", body, headers });
    const granted = await response.json();
    expect(granted.access_token, `no token: ${JSON.stringify(granted)}`);
    return granted.access_token;
  }
}
