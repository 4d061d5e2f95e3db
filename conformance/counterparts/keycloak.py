"""Keycloak: openid-connect with logins and bearer tokens, authz-keycloak with permissions, paths, scopes and the grant by password."""

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request

from identity import Browser, Load, echo, nodes
from scene import PROGRAMS, Missing, Scene, expect, free_port, wait_for

HOME = PROGRAMS / "keycloak"
REALM, SECRET, ORDERS_SECRET = "shop", "gateway-secret", "orders-secret"
PASSWORDS = {"alice": "wonder", "bob": "builder"}


def realm(callback: str) -> dict:
    """A realm with a client for logins, a resource server, and two users, one of whom may read orders."""
    users = [{"username": name, "enabled": True, "email": f"{name}@example.com", "emailVerified": True, "firstName": name, "lastName": "User",
              "credentials": [{"type": "password", "value": password}], "realmRoles": ["reader"] if name == "alice" else []}
             for name, password in PASSWORDS.items()]
    # The client may read the resources of its own, as the console of Keycloak lets it.
    users.append({"username": "service-account-orders", "enabled": True, "serviceAccountClientId": "orders", "clientRoles": {"orders": ["uma_protection"]}})
    policies = [
        {"name": "readers", "type": "role", "logic": "POSITIVE", "config": {"roles": json.dumps([{"id": "reader", "required": True}])}},
        {"name": "read orders", "type": "scope", "config": {"resources": '["orders"]', "scopes": '["GET"]', "applyPolicies": '["readers"]'}},
        {"name": "see reports", "type": "resource", "config": {"resources": '["reports"]', "applyPolicies": '["readers"]'}},
    ]
    authorization = {
        "allowRemoteResourceManagement": True, "policyEnforcementMode": "ENFORCING", "scopes": [{"name": "GET"}, {"name": "POST"}],
        "resources": [
            {"name": "orders", "uris": ["/lazy/orders/*", "/scoped/orders/*"], "scopes": [{"name": "GET"}, {"name": "POST"}]},
            {"name": "reports", "uris": ["/lazy/reports/*"]},
        ],
        "policies": policies,
    }
    # Keycloak introspects only tokens whose audience contains the client that asks.
    audience = {"name": "audience", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper",
                "config": {"included.client.audience": "orders", "access.token.claim": "true", "introspection.token.claim": "true"}}
    return {
        "realm": REALM, "enabled": True, "sslRequired": "none", "accessTokenLifespan": 300, "users": users,
        "roles": {"realm": [{"name": "reader"}], "client": {"orders": [{"name": "uma_protection"}]}},
        "clients": [
            {"clientId": "gateway", "secret": SECRET, "redirectUris": [callback, "http://127.0.0.1:*"], "standardFlowEnabled": True,
             "directAccessGrantsEnabled": True, "attributes": {"post.logout.redirect.uris": "+", "access.token.lifespan": "4"}},
            {"clientId": "orders", "secret": ORDERS_SECRET, "redirectUris": [], "directAccessGrantsEnabled": True, "serviceAccountsEnabled": True,
             "authorizationServicesEnabled": True, "authorizationSettings": authorization, "protocolMappers": [audience]},
        ],
    }


class Keycloak:
    """A server in development mode with the realm."""

    def __init__(self, scene: Scene, callback: str):
        program = HOME / "bin/kc.sh"
        if not program.exists():
            raise Missing("Keycloak is not installed: run scripts/deps.sh counterparts")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/realms/{REALM}"
        args = [program, "start-dev", "--http-host=127.0.0.1", f"--http-port={self.port}"]
        begin = time.monotonic()
        self.server = scene.server("keycloak", args, port=self.port, seconds=300, env={
            "KC_DB": "dev-mem", "KC_BOOTSTRAP_ADMIN_USERNAME": "admin", "KC_BOOTSTRAP_ADMIN_PASSWORD": "admin",
            "JAVA_OPTS_KC_HEAP": "-Xms64m -Xmx512m", "JAVA_OPTS_APPEND": "-XX:TieredStopAtLevel=1"})
        wait_for(lambda: self.is_up("master"), 240, "the start of Keycloak")
        scene.note(f"Keycloak started in {time.monotonic() - begin:.0f} s")
        form = {"client_id": "admin-cli", "grant_type": "password", "username": "admin", "password": "admin"}
        token = self.ask("realms/master/protocol/openid-connect/token", urllib.parse.urlencode(form).encode(), {})["access_token"]
        fields = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.ask("admin/realms", json.dumps(realm(callback)).encode(), fields)
        expect(self.is_up(REALM), "the realm was not made")

    def ask(self, path: str, body: bytes, fields: dict) -> dict:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", data=body, headers=fields)
        try:
            return json.loads(urllib.request.urlopen(request, timeout=240).read() or b"{}")
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.code} {error.read()[:400]}") from error

    def is_up(self, name: str) -> bool:
        try:
            url = f"http://127.0.0.1:{self.port}/realms/{name}/.well-known/openid-configuration"
            return urllib.request.urlopen(url, timeout=2).status == 200
        except OSError:
            return False

    def token(self, client: str, secret: str, user: str | None = None) -> str:
        form = {"client_id": client, "client_secret": secret, "grant_type": "client_credentials", "scope": "openid"}
        if user:
            form |= {"grant_type": "password", "username": user, "password": PASSWORDS[user]}
        url = f"{self.url}/protocol/openid-connect/token"
        return json.load(urllib.request.urlopen(url, data=urllib.parse.urlencode(form).encode(), timeout=20))["access_token"]


def resources(keycloak: Keycloak, upstream: int) -> dict:
    discovery = f"{keycloak.url}/.well-known/openid-configuration"
    login = {"client_id": "gateway", "client_secret": SECRET, "discovery": discovery, "scope": "openid email profile", "use_pkce": True, "use_nonce": True,
             "redirect_uri": "/app/callback", "logout_path": "/app/logout", "post_logout_redirect_uri": "/bye", "session": {"secret": "a secret of all nodes"}}
    bearer = {"client_id": "gateway", "discovery": discovery, "bearer_only": True, "use_jwks": True}
    uma = {"client_id": "orders", "client_secret": ORDERS_SECRET, "discovery": f"{keycloak.url}/.well-known/uma2-configuration"}
    routes = {
        "/app/*": {"openid-connect": login},
        "/api/*": {"openid-connect": bearer},
        "/audience/*": {"openid-connect": {**bearer, "claim_validator": {"audience": {"required": True, "match_with_client_id": True}}}},
        "/introspected/*": {"openid-connect": {**bearer, "use_jwks": False, "client_id": "orders", "client_secret": ORDERS_SECRET,
                                               "introspection_endpoint": f"{keycloak.url}/protocol/openid-connect/token/introspect"}},
        "/static/*": {"authz-keycloak": {**uma, "permissions": ["orders#GET"]}},
        "/lazy/*": {"authz-keycloak": {**uma, "lazy_load_paths": True}},
        "/scoped/*": {"authz-keycloak": {**uma, "lazy_load_paths": True, "http_method_as_scope": True}},
        "/elsewhere/*": {"authz-keycloak": {**uma, "permissions": ["orders#POST"], "access_denied_redirect_uri": "https://shop.example/denied"}},
        "/permissive/*": {"authz-keycloak": {**uma, "lazy_load_paths": True, "policy_enforcement_mode": "PERMISSIVE"}},
        "/login": {"authz-keycloak": {**uma, "lazy_load_paths": True, "password_grant_token_generation_incoming_uri": "/login"}},
        "/bye": {}, "/open": {},
    }
    return {"routes": [{"id": f"r{number}", "uri": uri, "plugins": plugins, "upstream": nodes(upstream)}
                       for number, (uri, plugins) in enumerate(routes.items())]}


def log_in(browser: Browser, url: str, user: str):
    """Opens a page, and writes name and password into the form of Keycloak."""
    page = browser.request(url)
    action, values = page.form()
    return browser.request(action, {**values, "username": user, "password": PASSWORDS[user]})


def run(scene: Scene):
    upstream = echo()
    keycloak = Keycloak(scene, "http://127.0.0.1:1/app/callback")
    gateway = scene.gateway(resources(keycloak, upstream.port))
    root = f"http://127.0.0.1:{gateway.port}"
    wait_for(lambda: gateway.get("/app/a")[0] == 302, 20, "the discovery of Keycloak")
    logins(scene, keycloak, gateway, root)
    bearers(scene, keycloak, gateway)
    permissions(scene, keycloak, gateway)
    away(scene, keycloak, gateway)


def logins(scene: Scene, keycloak: Keycloak, gateway, root: str):
    browser = Browser()
    with scene.case("a user logs in with PKCE and nonce, returns to the page, and the upstream gets the claims"):
        page = log_in(browser, f"{root}/app/page?a=b&c=%2F", "alice")
        expect(page.status == 200 and page.url == f"{root}/app/page?a=b&c=%2F", f"{page.status} at {page.url}: {page.text[:300]}")
        fields = json.loads(page.body)["fields"]
        user, claims = (json.loads(base64.b64decode(fields[name])) for name in ("x-userinfo", "x-id-token"))
        expect((user["email"], claims["preferred_username"]) == ("alice@example.com", "alice"), f"{user} {claims}")
    with scene.case("access tokens of four seconds are renewed, and the session lives on"):
        first = json.loads(browser.request(f"{root}/app/a").body)["fields"]["x-access-token"]
        time.sleep(4)
        page = browser.request(f"{root}/app/a", follow=False)
        expect(page.status == 200, f"{page.status} {page.text[:200]}")
        expect(json.loads(page.body)["fields"]["x-access-token"] != first, "the access token is the former one")
    with scene.case("a session that ended at Keycloak ends here, with the next renewal"):
        other = Browser()
        log_in(other, f"{root}/app/a", "bob")
        # The user leaves Keycloak itself, without the gateway.
        page = other.request(f"{keycloak.url}/protocol/openid-connect/logout?client_id=gateway")
        action, values = page.form()
        other.request(action, values)
        time.sleep(4)
        page = other.request(f"{root}/app/a", follow=False)
        expect(page.status == 302, f"{page.status}: {page.text[:200]}")
    with scene.case("a logout ends the session here and at Keycloak, and leads to the page after it"):
        page = browser.request(f"{root}/app/logout")
        expect((page.status, page.url) == (200, f"{root}/bye"), f"{page.status} at {page.url}: {page.text[:300]}")
        page = browser.request(f"{root}/app/a")
        expect("password" in page.text and keycloak.url in page.url, f"no form of Keycloak at {page.url}")


def bearer(token: str) -> dict:
    return {"Authorization": f"Bearer {token}"}


def bearers(scene: Scene, keycloak: Keycloak, gateway):
    with scene.case("bearer tokens are verified by the key set, and introspected"):
        token = keycloak.token("orders", ORDERS_SECRET, "alice")
        for path in ("/api/a", "/introspected/a"):
            wait_for(lambda path=path: gateway.get(path, bearer(token))[0] == 200, 10, f"the token at {path}")
            for wrong in (token[:-4] + "AAAA", "abc", ""):
                status = gateway.get(path, bearer(wrong))[0]
                expect(status in (400, 401), f"{path}: {wrong[-8:]!r} got {status}")
    with scene.case("a token for another audience is refused where the audience is checked"):
        status, _, body = gateway.get("/audience/a", bearer(token))
        expect((status, body) == (403, b'{"error":"mismatched audience"}'), f"{status} {body!r}")


def permissions(scene: Scene, keycloak: Keycloak, gateway):
    tokens = {name: keycloak.token("orders", ORDERS_SECRET, name) for name in PASSWORDS}
    cases = [
        ("static permission", "GET", "/static/a", {"alice": 200, "bob": 403}),
        ("permission of the path", "GET", "/lazy/reports/1", {"alice": 200, "bob": 403}),
        ("path without a resource", "GET", "/lazy/nothing", {"alice": 403, "bob": 403}),
        ("method as scope", "GET", "/scoped/orders/1", {"alice": 200, "bob": 403}),
        ("method without a permission", "POST", "/scoped/orders/1", {"alice": 403, "bob": 403}),
        ("redirect of a refusal", "GET", "/elsewhere/1", {"alice": 307, "bob": 307}),
        ("path without a resource, permissive", "GET", "/permissive/nothing", {"alice": 200, "bob": 403}),
    ]
    for name, method, path, wanted in cases:
        with scene.case(f"Keycloak decides: {name}"):
            for user, status in wanted.items():
                found, fields, body = gateway.get(path, bearer(tokens[user]), method=method)
                expect(found == status, f"{user}: {found} {body!r}")
                expect(found != 307 or fields["location"] == "https://shop.example/denied", f"{fields}")
    with scene.case("requests without a token, and with a forged one, are refused"):
        expect(gateway.get("/static/a")[0] == 401, "without a token")
        expect(gateway.get("/static/a", bearer(tokens["alice"][:-4] + "AAAA"))[0] in (400, 401, 403), "with a forged token")
        expect(gateway.get("/static/a", {"Authorization": tokens["alice"]})[0] == 200, "without the scheme")
    with scene.case("name and password are exchanged for a token, which authorizes"):
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        status, _, body = gateway.get("/login", form, "POST", b"username=alice&password=wonder")
        expect(status == 200, f"{status} {body!r}")
        token = json.loads(body)["access_token"]
        expect(gateway.get("/static/a", bearer(token))[0] == 200, "the token does not authorize")
        status, _, body = gateway.get("/login", form, "POST", b"username=alice&password=wrong")
        expect(status in (400, 401) and b"invalid_grant" in body, f"{status} {body!r}")
        expect(gateway.get("/login", form, "POST", b"password=wonder")[0] == 422, "without a name")


def away(scene: Scene, keycloak: Keycloak, gateway):
    token = keycloak.token("orders", ORDERS_SECRET, "alice")
    with scene.case("a Keycloak that hangs under load fails closed; bearer tokens and other requests pass"):
        with Load(gateway, "/open") as open_load, Load(gateway, "/api/a", bearer(token)) as bearer_load:
            with Load(gateway, "/static/a", bearer(token), rate=60, threads=60) as load:
                time.sleep(1)
                keycloak.server.freeze()
                time.sleep(5 if scene.short else 8)
                frozen = dict(load.statuses)
                keycloak.server.thaw()
                begin = time.monotonic()
                wait_for(lambda: gateway.get("/static/a", bearer(token))[0] == 200, 20, "the recovery")
                scene.note(f"recovered after {time.monotonic() - begin:.1f} s; answers until then {frozen}")
        open_load.expect_only(200)
        bearer_load.expect_only(200)
        load.expect_only(200, 503)
        expect(load.statuses[503] > 0, f"nothing was refused: {load.statuses}")
    with scene.case("a Keycloak that ended fails closed, and verified keys go on"):
        expect(gateway.get("/introspected/a", bearer(token))[0] == 200, "the token is refused")
        keycloak.server.stop()
        expect(gateway.get("/static/a", bearer(token))[0] == 503, "authorized without Keycloak")
        expect(gateway.get("/lazy/reports/1", bearer(token))[0] == 503, "authorized without Keycloak")
        expect(gateway.get("/api/a", bearer(token))[0] == 200, "the key set is lost")
        expect(gateway.get("/introspected/a", bearer(token))[0] == 200, "a known token is introspected again")
