// Journeys in which the provider is late, hangs, ends, changes its keys or has another clock.

import { eventually, expect, freePort, load, pause, send } from "./world.mjs";

const bearer = (token) => ({ Authorization: `Bearer ${token}` });

export const away = {
  async "key sets are rotated under load: no valid token is refused"({ provider, gateway, note, short, SECRET }) {
    let tokens = [await provider.token("programs", SECRET)];
    const headers = () => bearer(tokens[Math.floor(Math.random() * tokens.length)]);
    await eventually("the key set", async () => (await send(gateway.port, "/programs/a", { headers: headers() })).status === 200);
    const running = load(gateway.port, "/programs/a", 200, headers);
    await pause(1000);
    const fetches = (await provider.set()).jwks;
    await provider.set({ rotate: "overlap" });
    tokens = [tokens[0], await provider.token("programs", SECRET)];
    await pause(2000);
    if (!short) {
      // Unknown keys cause one fetch in ten seconds.
      await pause(9000);
      await provider.set({ rotate: "overlap" });
      tokens = [tokens[1], await provider.token("programs", SECRET)];
      await pause(2000);
    }
    const forged = load(gateway.port, "/programs/a", 50, bearer(`${Buffer.from('{"alg":"RS256","kid":"forged"}').toString("base64url")}.e30.AAAA`));
    await pause(1000);
    const refused = await forged.end();
    const { statuses, p99 } = await running.end();
    note(`rotation: ${JSON.stringify(statuses)}, p99 ${p99.toFixed(0)} ms, fetches of the key set ${(await provider.set()).jwks - fetches}`);
    expect(Object.keys(statuses).join() === "200", `statuses ${JSON.stringify(statuses)}`);
    expect(Object.keys(refused.statuses).join() === "401", `forged tokens: ${JSON.stringify(refused.statuses)}`);
  },

  async "a session goes on while the provider hangs; a renewal waits for it, and other requests do not"({ provider, gateway, root, oneLogin, note }) {
    await provider.set({ accessSeconds: 4 });
    const { context, page } = await oneLogin("refresh");
    const { context: steady, page: other } = await (async () => {
      await provider.set({ accessSeconds: 600 });
      return oneLogin("plain");
    })();
    const cookie = async (one) => (await one.cookies(root)).map(({ name, value }) => `${name}=${value}`).join("; ");
    const open = load(gateway.port, "/open", 200);
    const sessions = load(gateway.port, "/plain/x", 100, { Cookie: await cookie(steady) });
    provider.freeze();
    await pause(4500);
    const renewing = load(gateway.port, "/refresh/x", 20, { Cookie: await cookie(context) });
    await pause(5000);
    const frozen = { ...renewing.statuses };
    provider.thaw();
    const begun = Date.now();
    // The grant that hung may have used up the refresh token, so the user may be sent to the provider, which has a session.
    await eventually("the recovery", async () => (await page.goto(`${root}/refresh/back`)).status() === 200, 15);
    note(`hanging provider: renewals ${JSON.stringify(frozen)}, back after ${Date.now() - begun} ms`);
    await renewing.end();
    const [opens, keeps] = [await open.end(), await sessions.end()];
    note(`beside it: p99 ${opens.p99.toFixed(0)} ms without login, ${keeps.p99.toFixed(0)} ms with a session`);
    expect(Object.keys(opens.statuses).join() === "200", `without login: ${JSON.stringify(opens.statuses)}`);
    expect(Object.keys(keeps.statuses).join() === "200", `sessions: ${JSON.stringify(keeps.statuses)}`);
    expect(Object.keys(frozen).every((status) => status === "503"), `renewals: ${JSON.stringify(frozen)}`);
    expect(opens.p99 < 2000 && keeps.p99 < 2000, "other requests waited");
    expect((await other.goto(`${root}/plain/y`)).status() === 200, "the session is lost");
  },

  async "a provider that ended: sessions stay, logins and renewals are 503, and all of it recovers"({ provider, gateway, root, oneLogin, note }) {
    const { page } = await oneLogin("plain");
    await provider.kill();
    expect((await page.goto(`${root}/plain/y`)).status() === 200, "the session is lost");
    // The redirect to the provider needs no call; a pushed request does.
    expect((await send(gateway.port, "/plain/z")).status === 302, "no redirect");
    const pushed = await send(gateway.port, "/par/z");
    expect(pushed.status === 503, `pushed: ${pushed.status} ${pushed.text}`);
    const token = await send(gateway.port, "/opaque/z", { headers: bearer("unknown") });
    expect(token.status === 401 || token.status === 503, `introspection: ${token.status}`);
    await provider.start();
    const begun = Date.now();
    await eventually("the recovery", async () => (await send(gateway.port, "/par/z")).status === 302, 20);
    note(`back after ${Date.now() - begun} ms`);
    // The keys of the new process are others.
    await oneLogin("plain");
  },

  async "a gateway that starts before its provider is closed, and opens with it"({ world, provider, routes, oneLogin, note }) {
    await provider.kill();
    const gateway = await world.gateway(routes, { port: await freePort() });
    for (const [path, status] of [["/plain/a", 503], ["/programs/a", 401], ["/open", 200]]) {
      const headers = path === "/programs/a" ? bearer("a.b.c") : {};
      const response = await send(gateway.port, path, { headers });
      expect(response.status === status, `${path}: ${response.status} ${response.text}`);
    }
    await provider.start();
    const begun = Date.now();
    await eventually("the discovery", async () => (await send(gateway.port, "/plain/a")).status === 302, 65);
    note(`discovered after ${Date.now() - begun} ms`);
    gateway.child.kill("SIGTERM");
    // The keys of the new process are others, and the gateway asks for unknown keys once in ten seconds.
    await eventually("a login with the new keys", async () => (await oneLogin("plain")).context.close().then(() => true));
  },

  async "clocks that differ by a minute do not matter, and by ten minutes are named"({ provider, root, profile, logIn, oneLogin }) {
    for (const seconds of [60, -60]) {
      await provider.set({ clockSeconds: seconds });
      await (await oneLogin("plain")).context.close();
    }
    await provider.set({ clockSeconds: 600 });
    const page = await (await profile()).newPage();
    const failure = await logIn(page, `${root}/plain/page`).then(() => "a login", (error) => error.message);
    expect(failure.includes("check the clocks"), failure);
  },
};
