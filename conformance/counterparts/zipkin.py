"""Zipkin: the server of the project, by its own query API."""

import json

from scene import PROGRAMS, Missing, Scene, expect, fetch, free_port, program, wait_for
from sinks import Sink, id_of, prove, resources

TRACE, PARENT = "80f198ee56343ba864fe8b2a57d3eff7", "e457b5a2e4d86bd1"


def run(scene: Scene):
    jar = PROGRAMS / "zipkin/zipkin-server.jar"
    if not jar.exists():
        raise Missing(f"{jar} is not installed: run scripts/deps.sh counterparts")
    port = free_port()
    # Spans stay in memory: a restart loses those before it.
    server = scene.server("zipkin", [program("java"), "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", jar],
                          port=port, env={"QUERY_PORT": str(port), "MEM_MAX_SPANS": "200000", "SELF_TRACING_ENABLED": "false"}, seconds=90)
    base = f"http://127.0.0.1:{port}/api/v2"

    def spans() -> list[dict]:
        text = fetch(f"{base}/traces?serviceName=shop&spanName=apisix.request&limit=100000&lookback=3600000", seconds=30)
        # The server counts some characters of tags as longer than it writes them, and NUL bytes fill the rest of its response.
        traces = json.loads(text.rstrip(b"\0"))
        return [span for trace in traces for span in trace if span["name"] == "apisix.request"]

    def entries() -> list[dict]:
        found = []
        for span in spans():
            tags = span["tags"]
            found.append({"id": id_of(tags["http.url"]), "target": tags["http.url"], "method": tags["http.method"],
                          "status": tags["http.status_code"]})
        return found

    sink = Sink("zipkin", "zipkin", {"endpoint": f"{base}/spans", "sample_ratio": 1, "service_name": "shop"}, entries,
                members=("id", "target", "method", "status"), form={}, decodes=True, survives=False, pending_max=8192)
    document = resources([sink], scene.upstream().port)
    # The plugin has neither metadata nor settings of batches.
    route = document["routes"][0]
    route["plugins"]["zipkin"] = sink.settings
    gateway = scene.gateway({"routes": [route]})
    with scene.case("zipkin continues the trace of the caller, with its spans below the request"):
        gateway.get("/zipkin/child?id=child", {"b3": f"{TRACE}-{PARENT}-1"})
        wait_for(lambda: any(span["traceId"] == TRACE for span in spans()), 20, "the trace")
        trace = json.loads(fetch(f"{base}/trace/{TRACE}"))
        request = next(span for span in trace if span["name"] == "apisix.request")
        expect(request["parentId"] == PARENT and request["kind"] == "SERVER", f"{request}")
        expect(request["localEndpoint"]["serviceName"] == "shop" and request["remoteEndpoint"]["ipv4"] == "127.0.0.1", f"{request}")
        below = {span["name"] for span in trace if span.get("parentId") == request["id"]}
        expect(below == {"apisix.proxy", "apisix.response_span"}, f"below the request: {below}")
        expect(all(span["duration"] > 0 for span in trace), f"{trace}")
    prove(scene, gateway, [sink], server)
