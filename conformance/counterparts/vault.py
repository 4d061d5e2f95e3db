"""HashiCorp Vault: secrets of both key-value versions, narrow policies, rotated values, tokens that end, a sealed and an absent server."""

import json
import time
import urllib.error
import urllib.request

from identity import nodes
from managers import Node, check_away
from scene import Scene, expect, free_port, program, wait_for

# A value that must appear nowhere.
CANARY = "canary-7c1e52"


class Vault:
    """A server with its store, unsealed."""

    def __init__(self, scene: Scene):
        self.port, self.token, self.key = free_port(), "", ""
        self.url = f"http://127.0.0.1:{self.port}"
        (scene.folder / "store").mkdir()
        self.server = scene.server("vault", [program("vault"), f"127.0.0.1:{self.port}", scene.folder / "store"], port=self.port)
        made = self.call("PUT", "sys/init", {"secret_shares": 1, "secret_threshold": 1})
        self.key, self.token = made["keys_base64"][0], made["root_token"]
        self.unseal()
        for version in (1, 2):
            self.call("POST", f"sys/mounts/kv{version}", {"type": "kv", "options": {"version": str(version)}})
        self.call("POST", "sys/mounts/team/shop/kv", {"type": "kv", "options": {"version": "2"}})
        wait_for(lambda: self.answers("GET", "kv2/config"), 20, "the upgrade of the versioned store")

    def call(self, method: str, path: str, body: dict | None = None, token: str | None = None) -> dict:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}/v1/{path}", data=data, method=method, headers={"X-Vault-Token": token or self.token})
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.loads(response.read() or b"{}")

    def answers(self, method: str, path: str) -> bool:
        try:
            self.call(method, path)
        except urllib.error.HTTPError:
            return False
        return True

    def unseal(self):
        self.call("PUT", "sys/unseal", {"key": self.key})
        wait_for(lambda: not self.call("GET", "sys/seal-status")["sealed"] and self.answers("GET", "sys/mounts"), 20, "the unsealing")

    def write(self, mount: str, path: str, data: dict):
        """Writes a secret by the version of its mount."""
        if mount == "kv1":
            self.call("PUT", f"{mount}/{path}", data)
        else:
            self.call("PUT", f"{mount}/data/{path}", {"data": data})

    def new_token(self, policy: str, **more) -> str:
        self.call("PUT", "sys/policies/acl/gateway", {"policy": policy})
        return self.call("POST", "auth/token/create", {"policies": ["gateway"], "no_default_policy": True, **more})["auth"]["client_token"]


NARROW = """path "kv1/gateway/*" { capabilities = ["read"] }
path "kv2/data/gateway/*" { capabilities = ["read"] }
path "team/shop/kv/data/gateway/*" { capabilities = ["read"] }
"""


def resources(vault: Vault, tokens: dict, upstream: int) -> dict:
    """Consumers whose keys are in three stores, and a route for all of them."""
    prefixes = {"one": "kv1/gateway", "two": "kv2/gateway", "deep": "/team/shop/kv/gateway/", "data": "kv2/data/gateway"}
    managers = [{"id": f"vault/{name}", "uri": vault.url, "prefix": prefix, "token": tokens.get(name, tokens["all"])}
                for name, prefix in prefixes.items()]
    consumers = [{"username": name, "plugins": {"key-auth": {"key": f"$secret://vault/{name}/apps/{name}/key"}}} for name in prefixes]
    return {
        "secrets": managers,
        "consumers": consumers,
        "routes": [
            {"id": "keys", "uri": "/keys", "plugins": {"key-auth": {}}, "upstream": nodes(upstream)},
            {"id": "open", "uri": "/open", "upstream": nodes(upstream)},
        ],
    }


def run(scene: Scene):
    vault, upstream = Vault(scene), scene.upstream()
    for mount, name in (("kv1", "one"), ("kv2", "two"), ("team/shop/kv", "deep"), ("kv2", "data")):
        vault.write(mount, f"gateway/apps/{name}", {"key": f"{CANARY}-{name}-1", "number": 7})
    root = Node(scene, resources(vault, {"all": vault.token}, upstream.port))
    with scene.case("keys of both versions, of a mount with several segments, and of a prefix with data/ are in force at the start"):
        for name in ("one", "two", "deep", "data"):
            expect(root.status(f"{CANARY}-{name}-1") == 200, f"{name}: {root.status(f'{CANARY}-{name}-1')} {root.problems()}")
            expect(root.status(f"$secret://vault/{name}/apps/{name}/key") == 401, f"{name}: the reference is a key")
    root.gateway.server.stop()

    narrow = vault.new_token(NARROW, ttl="1h")
    document = resources(vault, {"all": narrow}, upstream.port)
    node = Node(scene, document)
    with scene.case("a token that may only read the secrets suffices for both versions"):
        for name in ("one", "two", "deep", "data"):
            expect(node.status(f"{CANARY}-{name}-1") == 200, f"{name}: {node.status(f'{CANARY}-{name}-1')} {node.problems()}")
    with scene.case("a rotated value replaces the former one, and appears in no output"):
        vault.write("kv1", "gateway/apps/one", {"key": f"{CANARY}-one-2"})
        vault.write("kv2", "gateway/apps/two", {"key": f"{CANARY}-two-2"})
        node.refresh()
        for name in ("one", "two"):
            node.wait_open(f"{CANARY}-{name}-2")
            expect(node.status(f"{CANARY}-{name}-1") == 401, f"{name}: the former key is still valid")
        node.expect_hidden(CANARY, narrow, more=node.command("secrets", "check", "$secret://vault/one/apps/one/key"))
    with scene.case("a deleted secret is reported, and its last value stays"):
        vault.call("DELETE", "kv2/data/gateway/apps/two")
        node.refresh()
        node.wait_problem("can't find main key")
        expect(node.status(f"{CANARY}-two-2") == 200, "the last value is lost")
        vault.write("kv2", "gateway/apps/two", {"key": f"{CANARY}-two-3"})
        node.refresh()
        node.wait_open(f"{CANARY}-two-3")
    tokens(scene, vault, node, document)
    away(scene, vault, node, upstream.port)


def tokens(scene: Scene, vault: Vault, node: Node, document: dict):
    with scene.case("a revoked token is reported, the last values stay, and a new token in the settings ends the problem"):
        short = vault.new_token(NARROW, ttl="1h")
        for manager in document["secrets"]:
            manager["token"] = short
        node.gateway.write(document)
        node.wait_current(4)
        vault.call("POST", "auth/token/revoke", {"token": short})
        vault.write("kv1", "gateway/apps/one", {"key": f"{CANARY}-one-3"})
        node.refresh()
        node.wait_problem("answered 403")
        expect(node.status(f"{CANARY}-one-2") == 200, "the last value is lost")
        for manager in document["secrets"]:
            manager["token"] = vault.new_token(NARROW, ttl="1h")
        node.gateway.write(document)
        node.wait_open(f"{CANARY}-one-3")
        node.wait_no_problem("403")
    with scene.case("a token that another program renews keeps working beyond its first lifetime"):
        periodic = vault.new_token(NARROW, period="3s")
        for manager in document["secrets"]:
            manager["token"] = periodic
        node.gateway.write(document)
        for _ in range(4):
            time.sleep(1.2)
            vault.call("POST", "auth/token/renew", {"token": periodic})
        vault.write("kv1", "gateway/apps/one", {"key": f"{CANARY}-one-4"})
        node.refresh()
        node.wait_open(f"{CANARY}-one-4")
        for manager in document["secrets"]:
            manager["token"] = vault.token
        node.gateway.write(document)
        node.wait_current(4)


def away(scene: Scene, vault: Vault, node: Node, upstream: int):
    key = f"{CANARY}-one-4"
    with scene.case("a sealed server is reported, its last values stay, and unsealing ends the problem"):
        vault.call("PUT", "sys/seal")
        node.refresh()
        node.wait_problem("answered 503")
        expect(node.status(key) == 200, "the last value is lost")
        vault.unseal()
        node.wait_no_problem("503")
    check_away(node, vault.server, key)
    with scene.case("a start without the server is closed, and the keys open once it is back"):
        late = Node(scene, resources(vault, {"all": vault.token}, upstream))
        expect(late.status(key) == 401, "open without a value")
        expect(late.gateway.get("/open")[0] == 200, "a route without secrets is closed")
        vault.server.start()
        vault.unseal()
        begin = time.monotonic()
        late.wait_open(key, 70)
        scene.note(f"recovered after {time.monotonic() - begin:.1f} s")
        node.wait_no_problem("cannot be refreshed", 70)
