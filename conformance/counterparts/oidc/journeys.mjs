// Logins in Chromium at oidc-provider through the gateway:
// journeys.mjs --binary FILE --modules FOLDER --browser FOLDER --logs FOLDER [--only WORD] [--short]
//
// Prints `ok`, `FAILED` or `note` and its texts, with tabs between them, a line each. The folder of modules has oidc-provider,
// that of the browser has playwright-core.

import { generateKeyPairSync } from "node:crypto";
import { createRequire } from "node:module";
import { join } from "node:path";
import { parseArgs } from "node:util";

import { away } from "./away.mjs";
import { World, eventually, expect, freePort, pause } from "./world.mjs";

const { values: options } = parseArgs({
  options: {
    binary: { type: "string" }, modules: { type: "string" }, browser: { type: "string" }, logs: { type: "string" }, only: { type: "string" },
    short: { type: "boolean" }, chromium: { type: "string", default: "/usr/bin/chromium" },
  },
});

const SECRET = "a secret of the client that is long enough";
const world = new World(options.binary, options.modules, options.logs);
const ports = { gateway: await freePort(), balancer: await freePort() };
const root = `http://127.0.0.1:${ports.gateway}`;
const safe = `https://127.0.0.1:${ports.balancer}`;

const clientKey = generateKeyPairSync("rsa", { modulusLength: 2048 });
const clientPem = clientKey.privateKey.export({ format: "pem", type: "pkcs8" });
const clientJwk = { ...clientKey.publicKey.export({ format: "jwk" }), kid: "gateway", use: "sig", alg: "RS256" };

/** A client whose redirect URI is below `/NAME/`. */
function client(name, more = {}) {
  const origins = [root, safe];
  return {
    client_id: name,
    client_secret: SECRET,
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    redirect_uris: origins.map((origin) => `${origin}/${name}/callback`),
    post_logout_redirect_uris: origins.map((origin) => `${origin}/open`),
    ...more,
  };
}

const provider = await world.providerAt([
  client("plain"), client("big"), client("offline"), client("consent"), client("silent"), client("loop"), client("refresh"), client("rotated"), client("balanced"),
  client("par", { require_pushed_authorization_requests: true }),
  client("post", { token_endpoint_auth_method: "client_secret_post" }),
  client("secretjwt", { token_endpoint_auth_method: "client_secret_jwt" }),
  client("privatejwt", { client_secret: undefined, token_endpoint_auth_method: "private_key_jwt", jwks: { keys: [clientJwk] } }),
  client("public", { client_secret: undefined, token_endpoint_auth_method: "none" }),
  ...["PS256", "ES256", "ES512", "EdDSA", "HS256"].map((name) => client(name.toLowerCase(), { id_token_signed_response_alg: name })),
  ...["programs", "opaque"].map((name) => client(name, { grant_types: ["client_credentials"], redirect_uris: [], response_types: [] })),
]);
const upstream = await world.upstream();

/** A route below `/NAME/` with the plugin. */
function route(name, more = {}) {
  const settings = {
    client_id: name, client_secret: SECRET, discovery: provider.discovery, redirect_uri: `/${name}/callback`, logout_path: `/${name}/logout`,
    post_logout_redirect_uri: "/open", scope: "openid email profile", use_pkce: true, use_nonce: true, ...more,
    session: { secret: "a secret of all nodes", cookie_name: `s-${name}`, ...more.session },
  };
  if (more.client_secret === null) delete settings.client_secret;
  return { id: name, uri: `/${name}/*`, plugins: { "openid-connect": settings }, upstream: { type: "roundrobin", nodes: { [`127.0.0.1:${upstream}`]: 1 } } };
}

const bearer = { bearer_only: true, session: undefined };
const privateKey = { client_secret: null, token_endpoint_auth_method: "private_key_jwt", client_rsa_private_key: clientPem, client_rsa_private_key_id: "gateway" };
const routes = [
  route("plain", { set_raw_id_token_header: true }), route("big"), route("refresh"), route("rotated"), route("balanced"),
  route("offline", { scope: "openid email offline_access" }),
  route("consent", { scope: "openid email offline_access", authorization_params: { prompt: "consent" }, set_refresh_token_header: true }),
  route("silent", { refresh_session_interval: 2 }), route("loop", { session: { cookie_path: "/nowhere" } }),
  route("par", { par: { enabled: true } }), route("post", { token_endpoint_auth_method: "client_secret_post", revoke_tokens_on_logout: true }),
  route("secretjwt", { token_endpoint_auth_method: "client_secret_jwt", par: { enabled: true } }),
  route("privatejwt", { ...privateKey, par: { enabled: true }, revoke_tokens_on_logout: true }),
  route("public", { client_secret: null }),
  ...["ps256", "es256", "es512", "eddsa", "hs256"].map((name) => route(name)),
  { ...route("programs", { ...bearer, use_jwks: true }) },
  { ...route("opaque", { ...bearer, introspection_endpoint: `${provider.url}/token/introspection`, introspection_interval: 1 }) },
  { id: "open", uri: "/open", upstream: { type: "roundrobin", nodes: { [`127.0.0.1:${upstream}`]: 1 } } },
];

let browser;
const note = (text) => console.log(`note\t${text}`);

/** A new browser profile without access to other hosts. */
async function profile() {
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  await context.route("**/*", (one) => (/^https?:\/\/(127\.0\.0\.1|localhost)[:/]/.test(one.request().url()) ? one.continue() : one.abort()));
  return context;
}

/** Fills in the form of the provider. */
async function fillIn(page, user = "alice") {
  await page.fill("input[name=login]", user);
  await page.fill("input[name=password]", "any");
  await page.click("button[type=submit]");
}

/** What the upstream has seen. */
const seenBy = async (page) => JSON.parse(await page.evaluate(() => document.body.innerText));
const claims = (seen, name) => JSON.parse(Buffer.from(seen.fields[name], "base64").toString());

/** Opens a page and logs in. */
async function logIn(page, url, user) {
  await page.goto(url);
  if (new URL(page.url()).port === String(provider.port)) await fillIn(page, user);
  await page.waitForURL((one) => one.href === url, { timeout: 15000 }).catch(async () => {
    throw new Error(`at ${page.url()}: ${(await page.evaluate(() => document.body.innerText)).slice(0, 200)}; provider: ${(await provider.set()).tokenErrors.slice(-2)}`);
  });
  return seenBy(page);
}

/** One login with the settings of a route. */
async function oneLogin(name) {
  const context = await profile();
  const page = await context.newPage();
  const sent = [];
  page.on("request", (one) => one.url().startsWith(`${provider.url}/auth?`) && sent.push(new URL(one.url()).searchParams));
  const seen = await logIn(page, `${root}/${name}/page?a=b&c=%2F`);
  expect(seen.target === `/${name}/page?a=b&c=%2F`, `the target is ${seen.target}`);
  expect(claims(seen, "x-userinfo").email === "alice@example.com", "the claims are others");
  return { context, page, seen, sent: sent[0] };
}

const journeys = {
  async "code flow with PKCE, state and nonce"() {
    const { context, seen, sent } = await oneLogin("plain");
    expect(sent.get("code_challenge_method") === "S256" && sent.get("code_challenge") && sent.get("nonce") && sent.get("state"), `sent ${sent}`);
    expect(claims(seen, "x-id-token").sub === "alice" && seen.fields["x-raw-id-token"].split(".").length === 3, "the ID token is missing");
    const states = (await context.cookies(root)).filter(({ name }) => name.includes("_login_"));
    expect(states.length === 0, `cookies of logins are left: ${states.map(({ name }) => name)}`);
  },

  async "ID tokens of PS256, ES256, ES512, EdDSA and HS256"() {
    for (const name of ["ps256", "es256", "es512", "eddsa", "hs256"]) await (await oneLogin(name)).context.close();
  },

  async "client authentication by client_secret_post, client_secret_jwt and private_key_jwt, and a public client"() {
    for (const name of ["post", "secretjwt", "privatejwt", "public"]) await (await oneLogin(name)).context.close();
  },

  async "pushed authorization requests"() {
    const before = (await provider.set()).pushed;
    const { sent } = await oneLogin("par");
    expect([...sent.keys()].sort().join() === "client_id,request_uri", `sent ${sent}`);
    expect((await provider.set()).pushed === before + 1, "not pushed once");
  },

  async "access tokens end, and one grant renews them for requests at once"() {
    await provider.set({ accessSeconds: 3 });
    // Refresh tokens that stay, and such that are used once.
    for (const name of ["refresh", "rotated"]) {
      const { page } = await oneLogin(name);
      for (let round = 0; round < 3; round += 1) {
        await pause(2500);
        const before = (await provider.set()).refresh_token;
        const statuses = await page.evaluate((url) => Promise.all(Array.from({ length: 20 }, () => fetch(url).then((one) => one.status))), `${root}/${name}/x`);
        expect(statuses.every((status) => status === 200), `statuses ${statuses}`);
        const grants = (await provider.set()).refresh_token - before;
        expect(grants >= 1 && grants <= 2, `${name}: ${grants} grants in round ${round}`);
      }
    }
  },

  async "a scope that was not granted does not end the session at its renewal"() {
    await provider.set({ accessSeconds: 3 });
    const { page } = await oneLogin("offline");
    await pause(2500);
    const sent = [];
    page.on("request", (one) => sent.push(one.url()));
    await page.goto(`${root}/offline/again`);
    expect(!sent.some((url) => url.startsWith(provider.url)), `the user was sent to the provider: ${(await provider.set()).tokenErrors.slice(-1)}`);
  },

  async "offline access with consent, and a refresh token for the upstream"() {
    const context = await profile();
    const page = await context.newPage();
    await page.goto(`${root}/consent/page`);
    await fillIn(page);
    await page.waitForSelector("text=offline_access", { timeout: 10000 }).catch(() => {});
    await page.click("button[type=submit]");
    await page.waitForURL(`${root}/consent/page`);
    expect((await seenBy(page)).fields["x-refresh-token"], "no refresh token");
  },

  async "logout here and at the provider, with the page after it"() {
    for (const name of ["plain", "post", "privatejwt"]) {
      const { context, page } = await oneLogin(name);
      await page.goto(`${root}/${name}/logout`);
      expect(page.url().startsWith(`${provider.url}/session/end`), `at ${page.url()}`);
      await page.click("button[value=yes]");
      await page.waitForURL(`${root}/open`);
      await page.goto(`${root}/${name}/page`);
      expect((await page.locator("input[name=login]").count()) === 1, `no form at ${page.url()}`);
      const left = (await context.cookies(root)).filter((one) => one.name === `s-${name}`);
      expect(left.length === 0, "the session cookie is left");
    }
    expect((await provider.set()).revocation >= 4, "the tokens are not revoked");
  },

  async "two logins at once, finished in either order"() {
    for (const order of [[0, 1], [1, 0]]) {
      const context = await profile();
      const pages = [await context.newPage(), await context.newPage()];
      const urls = pages.map((_, at) => `${root}/plain/tab${at}?x=${at}`);
      for (const [at, page] of pages.entries()) await page.goto(urls[at]);
      for (const at of order) {
        // The provider has one login for the browser: the form of the second tab may be answered by the first.
        await fillIn(pages[at], "alice");
        await pages[at].waitForURL(urls[at]).catch(() => { throw new Error(`tab ${at} is at ${pages[at].url()}`); });
        expect((await seenBy(pages[at])).target === `/plain/tab${at}?x=${at}`, "another page");
      }
      await context.close();
    }
  },

  async "scripts of an open page do not end the login that its user has begun"() {
    const context = await profile();
    const [page, script] = [await context.newPage(), await context.newPage()];
    await script.goto(`${root}/open`);
    await page.goto(`${root}/plain/page`);
    for (let round = 0; round < 3; round += 1) {
      await script.evaluate((url) => Promise.all(Array.from({ length: 6 }, () => fetch(url).catch(() => {}))), `${root}/plain/poll`);
    }
    await fillIn(page);
    await page.waitForURL(`${root}/plain/page`, { timeout: 5000 }).catch(async () => {
      throw new Error(`at ${page.url()}: ${await page.evaluate(() => document.body.innerText)}`);
    });
  },

  async "claims of six kilobytes in several cookies"() {
    for (const bytes of [6000, 2000, 9000]) {
      await provider.set({ claimBytes: bytes });
      const { context, page, seen } = await oneLogin("big");
      expect(claims(seen, "x-userinfo").groups[0].length >= bytes, "the claims are shorter");
      const cookies = (await context.cookies(root)).filter(({ name }) => name.startsWith("s-big"));
      note(`claims of ${bytes} bytes: ${cookies.length} cookies of ${cookies.reduce((sum, { value }) => sum + value.length, 0)} bytes`);
      expect(cookies.every(({ value }) => value.length < 4096), "a cookie is too long");
      const again = await page.goto(`${root}/big/again`);
      expect(again.status() === 200, `the session is lost: ${again.status()}`);
      // A shorter session must leave no rest of the longer one.
      await provider.set({ claimBytes: 0 });
      await page.goto(`${root}/big/logout`);
      const left = (await context.cookies(root)).filter(({ name }) => name.startsWith("s-big"));
      expect(left.length === 0, `left after the logout: ${left.map(({ name }) => name)}`);
      await context.close();
    }
  },

  async "a login without interaction after the interval, and with the form once the provider has no session"() {
    const { context, page } = await oneLogin("silent");
    await pause(3200);
    const sent = [];
    page.on("request", (one) => one.url().startsWith(`${provider.url}/auth?`) && sent.push(new URL(one.url()).searchParams.get("prompt")));
    await page.goto(`${root}/silent/page`);
    expect(page.url() === `${root}/silent/page` && sent.join() === "none", `at ${page.url()}, prompts ${sent}`);
    await context.clearCookies({ domain: "localhost" });
    await pause(3200);
    await page.goto(`${root}/silent/page`);
    expect((await page.locator("input[name=login]").count()) === 1, `no form at ${page.url()}`);
  },

  async "a session that the browser does not keep ends in an error, not in a redirect loop"() {
    const context = await profile();
    const page = await context.newPage();
    await page.goto(`${root}/loop/page`);
    await fillIn(page);
    const text = () => page.evaluate(() => document.body.innerText);
    await eventually("the error", async () => (await text()).includes("logins end without a session that lasts"), 15);
  },

  async "tokens of programs by key set and by introspection, revoked and forged"() {
    const jwt = await provider.token("programs", SECRET);
    const opaque = await provider.token("opaque", SECRET);
    const ask = (path, token) => fetch(`${root}${path}`, { headers: { Authorization: `Bearer ${token}` } }).then((one) => one.status);
    await eventually("the key set", async () => (await ask("/programs/a", jwt)) === 200);
    expect((await ask("/opaque/a", opaque)) === 200, "the opaque token is refused");
    for (const forged of [`${jwt.slice(0, -4)}AAAA`, opaque, "x"]) expect((await ask("/programs/a", forged)) === 401, `accepted ${forged}`);
    expect((await ask("/opaque/a", `${opaque}x`)) === 401, "a forged token is accepted");
    const body = new URLSearchParams({ token: opaque });
    const authorization = `Basic ${Buffer.from(`opaque:${SECRET}`).toString("base64")}`;
    await fetch(`${provider.url}/token/revocation`, { method: "POST", body, headers: { Authorization: authorization } });
    await eventually("the end of the revoked token", async () => (await ask("/opaque/a", opaque)) === 401, 5);
  },

  async "two gateways behind a load balancer that ends TLS"() {
    const trusting = { trusted_addresses: ["127.0.0.1"] };
    const gateways = [await world.gateway(routes, { node: trusting }), await world.gateway(routes, { node: trusting })];
    await world.balancer(gateways.map(({ port }) => port), ports.balancer);
    const context = await profile();
    const page = await context.newPage();
    const seen = await logIn(page, `${safe}/balanced/page?a=b`);
    expect(claims(seen, "x-id-token").sub === "alice", "the claims are others");
    const cookie = (await context.cookies(safe)).find(({ name }) => name === "s-balanced");
    expect(cookie?.secure && cookie.httpOnly && cookie.sameSite === "Lax", `the cookie is ${JSON.stringify(cookie)}`);
    for (let turn = 0; turn < 6; turn += 1) {
      const response = await page.goto(`${safe}/balanced/turn${turn}`);
      expect(response.status() === 200 && page.url() === `${safe}/balanced/turn${turn}`, `turn ${turn}: at ${page.url()}`);
    }
    await page.goto(`${safe}/balanced/logout`);
    await page.click("button[value=yes]");
    await page.waitForURL(`${safe}/open`);
    for (const gateway of gateways) gateway.child.kill("SIGTERM");
  },

  async "a load balancer that is not trusted shows at the provider, not as a loop"() {
    const gateway = await world.gateway(routes);
    const response = await fetch(`${gateway.url}/balanced/page`, { redirect: "manual", headers: { "X-Forwarded-Proto": "https" } });
    const target = new URL(response.headers.get("location"));
    expect(target.searchParams.get("redirect_uri").startsWith("http://"), "the field of an untrusted peer counts");
    gateway.child.kill("SIGTERM");
  },

  ...away,
};

async function main() {
  const { chromium } = createRequire(join(options.browser, "x"))("playwright-core");
  await provider.start();
  const gateway = await world.gateway(routes, { port: ports.gateway });
  await eventually("the discovery", () => fetch(`${root}/plain/`, { redirect: "manual" }).then(({ status }) => status === 302));
  const quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  browser = await chromium.launch({ executablePath: options.chromium, args: quiet });
  let failed = 0;
  for (const [name, journey] of Object.entries(journeys)) {
    if (options.only && !name.includes(options.only)) continue;
    try {
      await journey({ world, provider, gateway, root, routes, SECRET, profile, logIn, fillIn, oneLogin, note, short: options.short });
      console.log(`ok\t${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED\t${name}\t${String(error.message).replaceAll("\n", " ")}`);
    }
    await Promise.all(browser.contexts().map((one) => one.close()));
    // The next journey begins with the provider as it was.
    await provider.set({ accessSeconds: 600, clockSeconds: 0, claimBytes: 0 }).catch(() => {});
  }
  return failed;
}

let failed = 1;
try {
  failed = await main();
} catch (error) {
  console.log(`FAILED\tthe run\t${String(error.stack).replaceAll("\n", " ")}`);
} finally {
  await browser?.close();
  world.stop();
}
process.exit(failed ? 1 : 0);
