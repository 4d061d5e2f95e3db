"""OpenSearch: elasticsearch-logger."""

import json
import urllib.error
import urllib.request
from pathlib import Path

from scene import PROGRAMS, Missing, Scene, expect, fetch, free_port, program, wait_for
from sinks import Sink, prove, resources, settled

NODE = Path(__file__).parent / "programs/opensearch/SearchNode.java"


def run(scene: Scene):
    jars = PROGRAMS / "opensearch"
    if not jars.is_dir():
        raise Missing(f"{jars} is not installed: run scripts/deps.sh counterparts")
    http, transport = free_port(), free_port()
    server = scene.server("opensearch", [program("java"), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*",
                                         NODE, http, transport, scene.folder / "home"], port=http, seconds=120)
    base = f"http://127.0.0.1:{http}"

    def ask(path: str, body: dict | None = None) -> dict:
        return json.loads(fetch(base + path, json.dumps(body).encode() if body else None, {"Content-Type": "application/json"}, 30))

    def documents(pattern: str) -> list[dict]:
        try:
            fetch(f"{base}/{pattern}/_refresh", b"", seconds=30)
            found = ask(f"/{pattern}/_search", {"size": 10000, "query": {"match_all": {}}})
        except urllib.error.URLError:
            return []
        return [{**hit["_source"], "index": hit["_index"]} for hit in found["hits"]["hits"]]

    # Under load the first document of an index takes seconds; a batch that is repeated is there twice.
    settings = {"endpoint_addrs": [base], "timeout": 10}
    sinks = [Sink("search", "elasticsearch-logger", {**settings, "field": {"index": "requests-{%Y.%m.%d}"}}, lambda: documents("requests-*"))]
    strict = Sink("strict", "elasticsearch-logger", {**settings, "field": {"index": "strict"}}, lambda: documents("strict"),
                  form={"log_format": {"id": "$http_x_id", "number": "$arg_number"}})
    upstream = scene.upstream().port
    gateway = scene.gateway(resources(sinks + [strict], upstream))
    with scene.case("documents that the index refuses are dropped with the reason, their neighbours are kept"):
        request = urllib.request.Request(f"{base}/strict", json.dumps({"mappings": {"properties": {"number": {"type": "integer"}}}}).encode(),
                                         {"Content-Type": "application/json"}, method="PUT")
        urllib.request.urlopen(request, timeout=30).close()
        for number in range(20):
            gateway.get(f"/strict/{number}?number={'none' if number % 4 == 0 else number}", {"X-Id": f"strict-{number}"})
        wait_for(lambda: settled(gateway, strict)["dropped_failed"] == 5 and settled(gateway, strict)["sent"] == 15, 20,
                 lambda: f"15 sent, 5 dropped; {settled(gateway, strict)}")
        expect(len(strict.read()) == 15, f"{len(strict.read())} documents")
        expect("document refused" in gateway.log(), "the log has no reason")
    prove(scene, gateway, sinks, server)
    with scene.case("the index has the date of the entry"):
        names = {entry["index"] for entry in sinks[0].read()}
        expect(all(len(name) == len("requests-2026.01.01") for name in names), f"{names}")

