// An identity provider for the journeys: OpenID Connect with one user, who logs in without a question.

import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { createServer } from "node:http";

const encoded = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");

export async function startProvider() {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const codes = new Map();
  const provider = { url: "", claims: {}, isDown: false, stop: () => server.close() };

  function idToken({ client_id, nonce }) {
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: provider.url, sub: "1", aud: client_id, nonce, iat: now, exp: now + 300, ...provider.claims };
    const text = `${encoded({ alg: "ES256", kid: "k" })}.${encoded(claims)}`;
    return `${text}.${sign("sha256", Buffer.from(text), { key: privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
  }

  const endpoints = {
    "/.well-known/openid-configuration": () => ({
      issuer: provider.url, authorization_endpoint: `${provider.url}/authorize`, token_endpoint: `${provider.url}/token`, jwks_uri: `${provider.url}/keys`,
    }),
    "/keys": () => ({ keys: [{ ...publicKey.export({ format: "jwk" }), kid: "k", use: "sig" }] }),
    "/token": (form) => {
      const asked = codes.get(form.code);
      codes.delete(form.code);
      const challenge = createHash("sha256").update(form.code_verifier ?? "").digest("base64url");
      if (!asked || asked.redirect_uri !== form.redirect_uri || asked.code_challenge !== challenge) return { error: "invalid_grant" };
      return { access_token: "a", token_type: "Bearer", id_token: idToken(asked) };
    },
  };

  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, provider.url);
    let body = "";
    for await (const part of request) body += part;
    if (pathname === "/authorize") {
      const asked = Object.fromEntries(searchParams);
      const code = `code-${codes.size + 1}-${Date.now()}`;
      codes.set(code, asked);
      const back = new URLSearchParams({ code, state: asked.state });
      response.writeHead(302, { Location: `${asked.redirect_uri}?${back}` }).end();
      return;
    }
    const answer = provider.isDown ? undefined : endpoints[pathname]?.(Object.fromEntries(new URLSearchParams(body)));
    const status = answer === undefined ? 503 : answer.error ? 400 : 200;
    response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(answer ?? {}));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  provider.url = `http://127.0.0.1:${server.address().port}`;
  return provider;
}
