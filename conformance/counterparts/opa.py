"""Open Policy Agent: the policy of the guide, reasons, fields, objects in the input, a policy that changes, a server that is away."""

import json
import re
import time
import urllib.request

from identity import Load, basic, echo, nodes
from scene import ROOT, Scene, expect, fetch, free_port, program, wait_for

# Reports the input, so that cases see it.
INSPECT = """package inspect

result := {"allow": false, "status_code": 418, "reason": input, "headers": {"X-Why": "inspection", "X-Many": "a"}}
"""
# Decisions that are none.
BROKEN = """package broken

text := "yes"
number := {"allow": 1}
quoted := {"allow": "true"}
status := {"allow": false, "status_code": 9000, "reason": 7}
conflict := {"allow": true} if input.request.method == "GET"
conflict := {"allow": true, "headers": {}} if input.request.path != ""
"""


def guide_policy() -> str:
    """The policy that the guide has its readers write."""
    return re.search(r"```rego\n(.*?)```", (ROOT / "docs/guides/28-opa.md").read_text(), re.DOTALL)[1]


def resources(port: int, upstream: int) -> dict:
    def opa(policy: str, **more) -> dict:
        return {"host": f"http://127.0.0.1:{port}", "policy": policy, "timeout": 1000, **more}

    shop = opa("shop/http/result", send_headers_upstream=["X-Role"], with_consumer=True)
    routes = {
        "/catalog/*": {"opa": shop},
        "/team/*": {"key-auth": {}, "opa": shop},
        "/catalog/team/*": {"key-auth": {}, "opa": shop},
        "/inspect/*": {"basic-auth": {}, "opa": opa("inspect/result", with_route=True, with_service=True, with_consumer=True)},
        "/absent": {"opa": opa("shop/absent")},
        "/open": {},
        **{f"/broken/{name}": {"opa": opa(f"broken/{name}")} for name in ("text", "number", "quoted", "status", "conflict")},
    }
    return {
        "consumers": [
            {"username": "ann", "labels": {"team": "shop"}, "plugins": {"key-auth": {"key": "ann-key"}, "basic-auth": {"username": "ann", "password": "hush"}}},
            {"username": "bob", "labels": {"team": "other"}, "plugins": {"key-auth": {"key": "bob-key"}}},
        ],
        "services": [{"id": "shop", "name": "shop", "upstream": nodes(upstream)}],
        "routes": [{"id": f"r{number}", "name": uri, "uri": uri, "service_id": "shop", "plugins": plugins}
                   for number, (uri, plugins) in enumerate(routes.items())],
    }


def run(scene: Scene):
    policies = {"shop.rego": guide_policy(), "inspect.rego": INSPECT, "broken.rego": BROKEN}
    for name, text in policies.items():
        (scene.folder / name).write_text(text)
    port, upstream = free_port(), echo()
    args = [program("opa"), "run", "--server", "--addr", f"127.0.0.1:{port}", "--log-level", "error", *policies]
    server = scene.server("opa", args, port=port)
    wait_for(lambda: fetch(f"http://127.0.0.1:{port}/health") is not None, 20, "health of OPA")
    gateway = scene.gateway(resources(port, upstream.port))
    decisions(scene, gateway)
    with scene.case("a policy that is replaced is in force at the next request"):
        url = f"http://127.0.0.1:{port}/v1/policies/inspect.rego"
        text = INSPECT.replace("418", "451")
        urllib.request.urlopen(urllib.request.Request(url, data=text.encode(), method="PUT", headers={"Content-Type": "text/plain"})).close()
        status = gateway.get("/inspect/a", basic("ann", "hush"))[0]
        expect(status == 451, f"got {status}")
    away(scene, gateway, server)


def decisions(scene: Scene, gateway):
    with scene.case("the guide's policy admits readers, and gives the upstream its own role only"):
        status, _, body = gateway.get("/catalog/1", {"X-Role": "admin", "X_Role": "admin"})
        expect(status == 200, f"got {status} {body!r}")
        roles = {name: value for name, value in json.loads(body)["fields"].items() if "role" in name}
        expect(roles == {"x-role": "reader"}, f"the upstream saw {roles}")
    with scene.case("the guide's policy refuses others with its status and reason"):
        status, _, body = gateway.get("/catalog/1", method="POST", body=b"x")
        expect((status, body) == (403, b"not allowed"), f"got {status} {body!r}")
        status, _, body = gateway.get("/team/1", {"apikey": "bob-key"})
        expect((status, body) == (403, b"not allowed"), f"got {status} {body!r}")
    with scene.case("the guide's policy admits by a label of the consumer, also where its reader rule holds"):
        for method, path in (("PUT", "/team/1"), ("GET", "/team/1"), ("GET", "/catalog/team/1")):
            status, _, body = gateway.get(path, {"apikey": "ann-key"}, method=method)
            expect(status == 200, f"{method} {path}: got {status} {body!r}")
            role = json.loads(body)["fields"].get("x-role")
            expect(role == "editor", f"{method} {path}: the upstream saw {role}")
    with scene.case("the input has the request, route, service and consumer, and no secret of them"):
        status, fields, body = gateway.get("/inspect/%61?q=1&q=2&empty=&flag", {**basic("ann", "hush"), "X-Twice": "a", "Accept": "b"})
        expect((status, fields.get("x-why"), fields.get("x-many")) == (418, "inspection", "a"), f"got {status} {fields} {body!r}")
        seen = json.loads(body)
        request = seen["request"]
        expect((seen["type"], request["method"], request["scheme"]) == ("http", "GET", "http"), f"{seen}")
        expect(request["query"]["q"] == ["1", "2"] and request["headers"]["accept"] == "b", f"{request}")
        names = seen["route"]["name"], seen["service"]["name"], seen["consumer"]["username"], seen["consumer"]["labels"]["team"]
        expect(names == ("/inspect/*", "shop", "ann", "shop"), f"{names}")
        expect(b"ann-key" not in body, "a credential of the consumer is in the input")
        expect(set(seen["var"]) >= {"server_addr", "server_port", "remote_addr", "remote_port", "timestamp"}, f"{seen['var']}")
    with scene.case("without a decision nobody passes"):
        for name, wanted in (("text", (403, 503)), ("number", (403,)), ("quoted", (403,)), ("status", (403,)), ("conflict", (403, 503))):
            status = gateway.get(f"/broken/{name}")[0]
            expect(status in wanted, f"{name}: {status}")
        expect(gateway.get("/absent")[0] == 503, "a policy that is not loaded")


def away(scene: Scene, gateway, server):
    with scene.case("a server that ends fails closed, and the first request after its restart is answered"):
        server.stop()
        status = gateway.get("/catalog/1")[0]
        expect(status == 403, f"got {status} without OPA")
        server.start()
        begin = time.monotonic()
        wait_for(lambda: gateway.get("/catalog/1")[0] == 200, 5, "the recovery")
        scene.note(f"recovered after {time.monotonic() - begin:.2f} s")
    with scene.case("a server that hangs under load fails closed, and concerns no other request"):
        with Load(gateway, "/open", rate=50) as open_load:
            with Load(gateway, "/catalog/1", rate=80, threads=80) as load:
                time.sleep(1)
                server.freeze()
                time.sleep(6)
                frozen = dict(load.statuses)
                server.thaw()
                begin = time.monotonic()
                wait_for(lambda: gateway.get("/catalog/1")[0] == 200, 10, "the recovery")
                scene.note(f"recovered after {time.monotonic() - begin:.1f} s; answers until then {frozen}")
                time.sleep(1)
        scene.note(f"p99 beside it: {open_load.percentile_ms(0.99):.0f} ms")
        open_load.expect_only(200)
        load.expect_only(200, 403)
        expect(load.statuses[403] > 0, f"nothing was refused: {load.statuses}")
        expect(open_load.percentile_ms(0.99) < 2000, f"requests without OPA waited: {open_load.percentile_ms(0.99):.0f} ms")
