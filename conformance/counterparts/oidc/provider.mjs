// An OpenID provider of oidc-provider for journeys: provider.mjs MODULES CONFIG
//
// CONFIG is a file with `port`, `control` and `clients`. A POST to the control port changes `state`, a GET reports counts.

import { generateKeyPairSync, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, file] = process.argv.slice(2);
const config = JSON.parse(readFileSync(file, "utf8"));
const { Provider } = await import(pathToFileURL(join(modules, "oidc-provider/lib/index.js")).href);

const state = { accessSeconds: 600, clockSeconds: 0, claimBytes: 0 };
const counts = { code: 0, refresh_token: 0, client_credentials: 0, introspection: 0, jwks: 0, pushed: 0, revocation: 0, tokenErrors: [] };

// The provider reads the time by Date.now only, so its clock can differ from that of the machine.
const now = Date.now;
Date.now = () => now() + state.clockSeconds * 1000;

function key(kind, options, algorithm) {
  const jwk = generateKeyPairSync(kind, options).privateKey.export({ format: "jwk" });
  return { ...jwk, use: "sig", alg: algorithm, kid: randomBytes(6).toString("hex") };
}

const newKeys = () => [
  key("rsa", { modulusLength: 2048 }, "RS256"),
  key("rsa", { modulusLength: 2048 }, "PS256"),
  key("ec", { namedCurve: "P-256" }, "ES256"),
  key("ec", { namedCurve: "P-521" }, "ES512"),
  key("ed25519", {}, "EdDSA"),
];
let keys = newKeys();

const account = (id) => ({
  accountId: id,
  claims: () => {
    // Random, so that no compression shortens it.
    const groups = state.claimBytes ? [randomBytes(Math.ceil((state.claimBytes * 3) / 4)).toString("base64")] : ["staff"];
    return { sub: id, email: `${id}@example.com`, email_verified: true, name: `User ${id}`, groups };
  },
});

/** Grants of the first login are given without a page of consent, for the scopes that need none. */
async function grantOf(ctx) {
  const { client, session, provider, result } = ctx.oidc;
  const id = result?.consent?.grantId ?? session.grantIdFor(client.clientId);
  const known = id && (await provider.Grant.find(id));
  if (known) return known;
  const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
  grant.addOIDCScope("openid email profile");
  await grant.save();
  return grant;
}

const algorithms = ["RS256", "PS256", "ES256", "ES512", "EdDSA", "HS256"];

function makeProvider() {
  const provider = new Provider(`http://localhost:${config.port}`, {
    clients: config.clients,
    jwks: { keys },
    cookies: { keys: ["signature of cookies"] },
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "groups"] },
    conformIdTokenClaims: false,
    enabledJWA: { idTokenSigningAlgValues: algorithms },
    findAccount: (_ctx, id) => account(id),
    issueRefreshToken: (_ctx, client) => client.grantTypeAllowed("refresh_token"),
    loadExistingGrant: grantOf,
    pkce: { required: () => false },
    rotateRefreshToken: (ctx) => ctx.oidc.client.clientId === "rotated",
    ttl: { AccessToken: () => state.accessSeconds, ClientCredentials: 600, IdToken: 3600, Grant: 3600, Interaction: 600, RefreshToken: 3600, Session: 3600 },
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: true },
      introspection: { enabled: true, allowedPolicy: () => true },
      pushedAuthorizationRequests: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: (_ctx, client) => (client.clientId === "programs" ? "urn:orders" : undefined),
        getResourceServerInfo: () => ({ scope: "orders.read", audience: "orders", accessTokenFormat: "jwt", accessTokenTTL: 600, jwt: { sign: { alg: "RS256" } } }),
        useGrantedResource: () => true,
      },
      revocation: { enabled: true, allowedPolicy: () => true },
      rpInitiatedLogout: { enabled: true },
    },
  });
  provider.on("grant.success", (ctx) => (counts[ctx.oidc.params.grant_type === "authorization_code" ? "code" : ctx.oidc.params.grant_type] += 1));
  const refuse = (ctx, error) => counts.tokenErrors.push(`${ctx.path}: ${error.message} ${error.error_description ?? ""} ${error.error_detail ?? ""}`.trim());
  for (const event of ["grant.error", "pushed_authorization_request.error", "introspection.error", "revocation.error", "authorization.error"]) provider.on(event, refuse);
  return provider.callback();
}

let handler = makeProvider();
const counted = { "/jwks": "jwks", "/request": "pushed", "/token/introspection": "introspection", "/token/revocation": "revocation" };
const main = createServer((request, response) => {
  const name = counted[request.url.split("?")[0]];
  if (name) counts[name] += 1;
  handler(request, response);
});

const control = createServer(async (request, response) => {
  let body = "";
  for await (const chunk of request) body += chunk;
  const change = body ? JSON.parse(body) : {};
  if (change.rotate) {
    // "overlap" publishes the former keys beside the new ones.
    keys = change.rotate === "overlap" ? [...newKeys(), ...keys.slice(0, 5)] : newKeys();
    handler = makeProvider();
  }
  delete change.rotate;
  Object.assign(state, change);
  response.setHeader("Content-Type", "application/json");
  response.end(JSON.stringify(counts));
});
main.listen(config.port, "127.0.0.1");
control.listen(config.control, "127.0.0.1");
