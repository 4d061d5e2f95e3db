"""OTLP with the definitions of the protocol and grpcio: opentelemetry over HTTP and gRPC, metrics of the node."""

import json
import sys
from pathlib import Path

from scene import PROGRAMS, Missing, Scene, expect, free_port, wait_for
from sinks import BATCH, PENDING_MAX, Sink, check_metrics, check_restart, check_whole, id_of, prove

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def document(upstream: int, collector: dict) -> dict:
    plugin = {"sampler": {"name": "always_on"}, "additional_header_prefix_attributes": ["x-id"]}
    return {
        "routes": [{"id": "otel", "uri": "/otel/*", "plugins": {"opentelemetry": plugin},
                    "upstream": {"nodes": {f"127.0.0.1:{upstream}": 1}}},
                   {"id": "dead", "uri": "/dead", "plugins": {"opentelemetry": plugin}, "upstream": {"nodes": {"127.0.0.1:1": 1}}}],
        "plugin_metadata": [{
            "id": "opentelemetry", "collector": {**collector, "request_timeout": 1}, "resource": {"service.name": "shop-gateway", "size": 7},
            "batch_span_processor": {"inactive_timeout": 1, "max_queue_size": PENDING_MAX, "max_export_batch_size": BATCH["batch_max_size"]}}],
    }


def check_spans(scene: Scene, gateway, rows):
    with scene.case("a span continues the trace of the caller, with the resource of the metadata"):
        gateway.get("/otel/child?id=child", {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Id": "child"})
        span = wait_for(lambda: [row for row in rows() if row.get("trace") == TRACE], 10, "the span")[0]
        expect((span["parent"], span["name"], span["kind"]) == (PARENT, "GET /otel/*", 2), f"{span}")
        expect(span["resource"].get("service.name") == "shop-gateway" and span["resource"].get("size") == 7, f"{span['resource']}")
        expect(span["ns"] > 0 and not span["error"] and span["tags"].get("x-id") == "child", f"{span}")
    with scene.case("a failed request is a span with an error"):
        status, _, _ = gateway.get("/dead?id=dead")
        span = wait_for(lambda: [row for row in rows() if row.get("name") == "GET /dead"], 10, "the span")[0]
        expect(span["error"] and span["tags"]["http.response.status_code"] == status == 502, f"{status}: {span}")
    with scene.case("all metrics of /metrics arrive"):
        check_metrics(gateway, lambda: {row["metric"] for row in rows() if "metric" in row})


def run(scene: Scene):
    libraries = PROGRAMS / "otlp"
    if not libraries.is_dir():
        raise Missing(f"{libraries} is not installed: run scripts/deps.sh counterparts")
    http, grpc, out = free_port(), free_port(), scene.folder / "rows.jsonl"
    server = scene.server("otlp", [sys.executable, Path(__file__).parent / "programs/otlp/server.py", libraries, http, grpc, out], port=http)

    def rows() -> list[dict]:
        return [json.loads(line) for line in out.read_text().split("\n") if line]

    def entries() -> list[dict]:
        tags = [row["tags"] for row in rows() if row.get("name", "").endswith(" /otel/*")]
        return [{"id": id_of(own["http.target"]), "target": own["http.target"], "method": own["http.method"],
                 "status": own["http.status_code"], "agent": own.get("http.user_agent")} for own in tags]

    sink = Sink("otel", "opentelemetry", {}, entries, members=("id", "target", "agent", "method", "status"), decodes=True)
    upstream = scene.upstream().port
    gateway = scene.gateway(document(upstream, {"address": f"127.0.0.1:{http}"}),
                            {"observe": {"otlp": {"endpoint": f"http://127.0.0.1:{http}", "metrics_interval_s": 2}}})
    check_spans(scene, gateway, rows)
    prove(scene, gateway, [sink], server)
    gateway.write(document(upstream, {"address": f"127.0.0.1:{grpc}", "protocol": "grpc"}))
    before = len(rows())

    def is_grpc() -> bool:
        gateway.get("/otel/grpc?id=grpc")
        return f"127.0.0.1:{grpc}" in str([own.get("sink") for name, own, value in gateway.metrics()
                                          if name == "yumen_sink_entries_total" and value and own.get("result") == "sent"])
    with scene.case("gRPC takes over after a change of the metadata"):
        wait_for(is_grpc, 15, "spans over gRPC")
        expect(len(rows()) > before, "no rows")
    out.write_text("")
    check_whole(scene, gateway, [sink])
    check_restart(scene, gateway, [sink], server)
