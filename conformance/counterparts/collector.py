"""OpenTelemetry Collector: opentelemetry (HTTP and gRPC), zipkin, datadog, tcp-logger, udp-logger, syslog, metrics by OTLP."""

import json
import socket
import threading
import time

from scene import HttpStub, Scene, expect, free_port, program, wait_for
from sinks import BATCH, Sink, check_metrics, check_whole, id_of, prove, resources

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def value_of(value: dict):
    """A value of OTLP/JSON."""
    kind, inner = next(iter(value.items()), ("", None))
    if kind == "kvlistValue":
        return attributes(inner.get("values", []))
    return int(inner) if kind == "intValue" else inner


def attributes(pairs: list[dict]) -> dict:
    return {pair["key"]: value_of(pair.get("value", {})) for pair in pairs}


class Records:
    """Takes what the collector exports as OTLP/JSON."""

    def __init__(self):
        self.lock = threading.Lock()
        self.spans, self.lines, self.metrics = [], [], []
        self.stub = HttpStub(self.take)

    def take(self, _method, path, _fields, body):
        document = json.loads(body)
        with self.lock:
            for resource in document.get("resourceSpans", []):
                for scope in resource.get("scopeSpans", []):
                    own = attributes(resource.get("resource", {}).get("attributes", []))
                    self.spans += [{**span, "tags": attributes(span.get("attributes", [])), "resource": own} for span in scope["spans"]]
            for resource in document.get("resourceLogs", []):
                for scope in resource.get("scopeLogs", []):
                    self.lines += [(record.get("body", {}).get("stringValue", ""), attributes(record.get("attributes", [])))
                                   for record in scope["logRecords"]]
            for resource in document.get("resourceMetrics", []):
                for scope in resource.get("scopeMetrics", []):
                    self.metrics += scope["metrics"]
        return 200, {"Content-Type": "application/json"}, b"{}"

    def requests_of(self, is_own, target: str) -> list[dict]:
        """Server spans as entries."""
        with self.lock:
            spans = [span["tags"] for span in self.spans if is_own(span)]
        return [{"id": id_of(str(tags.get(target))), "target": tags.get(target), "method": tags.get("http.method"),
                 # The collector renames this tag of Zipkin.
                 "status": tags.get("http.status_code", tags.get("http.response.status_code")), "agent": tags.get("http.user_agent")} for tags in spans]

    def entries(self, route: str) -> list[dict]:
        """Entries of log records: a batch of tcp-logger and udp-logger is one record with a list."""
        found = []
        with self.lock:
            lines = list(self.lines)
        for body, more in lines:
            text = more.get("message", body)
            try:
                batch = json.loads(text)
            except ValueError:
                batch = [{"broken": text}]
            for entry in batch if isinstance(batch, list) else [batch]:
                if str(entry.get("target", "")).startswith(f"/{route}/"):
                    found.append(entry)
        return found


def configuration(ports: dict, stub: int) -> dict:
    """JSON is YAML."""
    local = lambda name: f"127.0.0.1:{ports[name]}"
    out = {"receivers": [], "exporters": ["otlphttp"]}
    return {
        "receivers": {
            "otlp": {"protocols": {"http": {"endpoint": local("otlp")}, "grpc": {"endpoint": local("grpc")}}},
            "zipkin": {"endpoint": local("zipkin")},
            "syslog": {"protocol": "rfc5424", "tcp": {"listen_address": local("syslog")}},
            "tcplog": {"listen_address": local("tcplog")},
            "udplog": {"listen_address": local("udplog")},
            "statsd": {"endpoint": local("statsd"), "aggregation_interval": "1s"},
        },
        "exporters": {"otlphttp": {"endpoint": f"http://127.0.0.1:{stub}", "encoding": "json", "compression": "none",
                                   "sending_queue": {"enabled": False}}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {
                "traces": {**out, "receivers": ["otlp", "zipkin"]},
                "logs": {**out, "receivers": ["syslog", "tcplog", "udplog"]},
                "metrics": {**out, "receivers": ["otlp", "statsd"]},
            },
        },
    }


def check_spans(scene: Scene, gateway, records: Records):
    with scene.case("opentelemetry continues the trace of the caller, with the resource of the metadata"):
        gateway.get("/otel/child?id=child", {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Id": "child"})
        span = wait_for(lambda: [span for span in records.spans if span["traceId"] == TRACE], 10, "the span")[0]
        expect(span.get("parentSpanId") == PARENT, f"parent {span.get('parentSpanId')}")
        expect(span["name"] == "GET /otel/*" and span["kind"] == 2, f"{span['name']} of kind {span['kind']}")
        expect(span["resource"].get("service.name") == "shop-gateway", f"resource {span['resource']}")
        expect(int(span["endTimeUnixNano"]) > int(span["startTimeUnixNano"]), "the span ends before it begins")
        expect(span["tags"].get("x-id") == "child", f"attributes {span['tags']}")
    with scene.case("zipkin continues the trace of the caller, with its spans below the request"):
        gateway.get("/zipkin/child?id=child", {"b3": f"{TRACE[::-1]}-{PARENT}-1"})
        own = lambda: [span for span in records.spans if span["traceId"] == TRACE[::-1]]
        wait_for(lambda: len(own()) >= 3, 10, "three spans")
        request = next(span for span in own() if span["name"] == "apisix.request")
        expect(request.get("parentSpanId") == PARENT and request["kind"] == 2, f"{request}")
        below = {span["name"] for span in own() if span.get("parentSpanId") == request["spanId"]}
        expect(below == {"apisix.proxy", "apisix.response_span"}, f"below the request: {below}")
        expect(request["resource"].get("service.name") == "shop", f"resource {request['resource']}")


def check_both_metrics(scene: Scene, gateway, records: Records):
    with scene.case("datadog: counters, histograms and times arrive with their tags"):
        def counted():
            points = [point for metric in records.metrics if metric["name"] == "shop.request.counter"
                      for point in metric["sum"]["dataPoints"]]
            return sum(int(point.get("asInt", 0)) for point in points)
        before = counted()
        for number in range(50):
            gateway.get(f"/statsd/{number}")
        wait_for(lambda: counted() - before >= 50, 10, f"50 requests; {counted() - before}")
        time.sleep(1.5)
        expect(counted() - before == 50, f"{counted() - before} requests are counted")
        names = {metric["name"] for metric in records.metrics}
        wanted = {f"shop.{name}" for name in ("request.latency", "upstream.latency", "apisix.latency", "ingress.size", "egress.size")}
        expect(wanted <= names, f"missing: {wanted - names}")
        point = next(metric for metric in records.metrics if metric["name"] == "shop.request.counter")["sum"]["dataPoints"][0]
        tags = attributes(point.get("attributes", []))
        for name, value in {"source": "apisix", "route_name": "statsd", "response_status": "200", "response_status_class": "2xx",
                            "scheme": "http"}.items():
            expect(tags.get(name) == value, f"tag {name} is {tags.get(name)!r}")
    with scene.case("metrics of the node arrive by OTLP"):
        check_metrics(gateway, lambda: {metric["name"] for metric in records.metrics if not metric["name"].startswith("shop.")})


def run(scene: Scene):
    records = Records()
    ports = {name: free_port(socket.SOCK_DGRAM if name in ("udplog", "statsd") else socket.SOCK_STREAM)
             for name in ("otlp", "grpc", "zipkin", "syslog", "tcplog", "udplog", "statsd")}
    config = scene.folder / "collector.yaml"
    config.write_text(json.dumps(configuration(ports, records.stub.port)))
    server = scene.server("collector", [program("collector"), "--config", f"file:{config}"], port=ports["otlp"])
    local = {"host": "127.0.0.1"}
    sinks = [
        Sink("otel", "opentelemetry", {"sampler": {"name": "always_on"}, "additional_header_prefix_attributes": ["x-id"]},
             lambda: records.requests_of(lambda span: span["tags"].get("apisix.route_id") == "otel", "http.target"),
             members=("id", "target", "agent", "method", "status"), form={}, decodes=True),
        Sink("zipkin", "zipkin", {"endpoint": f"http://127.0.0.1:{ports['zipkin']}/api/v2/spans", "sample_ratio": 1, "service_name": "shop"},
             lambda: records.requests_of(lambda span: span["name"] == "apisix.request", "http.url"),
             members=("id", "target", "method", "status"), form={}, decodes=True, pending_max=8192),
        Sink("syslog", "syslog", {**local, "port": ports["syslog"], "timeout": 1000}, lambda: records.entries("syslog"), confirms=False),
        Sink("tcplog", "tcp-logger", {**local, "port": ports["tcplog"], "max_retry_count": 1}, lambda: records.entries("tcplog"),
             confirms=False),
        Sink("udplog", "udp-logger", {**local, "port": ports["udplog"], "batch_max_size": 1}, lambda: records.entries("udplog"),
             confirms=False, lossless=False),
    ]
    upstream = scene.upstream().port

    def document(collector: dict) -> dict:
        made = resources(sinks, upstream, [
            {"id": "opentelemetry", "collector": {**collector, "request_timeout": 1}, "resource": {"service.name": "shop-gateway"},
             "batch_span_processor": {"inactive_timeout": 1, "max_queue_size": 300, "max_export_batch_size": BATCH["batch_max_size"]}},
            {"id": "datadog", "host": "127.0.0.1", "port": ports["statsd"], "namespace": "shop"}])
        for route in made["routes"]:
            for plugin in ("opentelemetry", "zipkin"):
                if plugin in route["plugins"]:
                    route["plugins"][plugin] = {key: value for key, value in route["plugins"][plugin].items() if key not in BATCH}
        made["plugin_metadata"] = [{key: value for key, value in item.items()
                                    if item["id"] not in ("opentelemetry", "zipkin") or key != "max_pending_entries"}
                                   for item in made["plugin_metadata"] if item["id"] != "zipkin"]
        made["routes"].append({"id": "statsd", "uri": "/statsd/*", "plugins": {"datadog": {**BATCH}},
                               "upstream": {"nodes": {f"127.0.0.1:{upstream}": 1}}})
        return made

    gateway = scene.gateway(document({"address": f"127.0.0.1:{ports['otlp']}"}),
                            {"observe": {"otlp": {"endpoint": f"http://127.0.0.1:{ports['otlp']}", "metrics_interval_s": 2}}})
    check_spans(scene, gateway, records)
    check_both_metrics(scene, gateway, records)
    prove(scene, gateway, sinks, server)
    gateway.write(document({"address": f"127.0.0.1:{ports['grpc']}", "protocol": "grpc"}))
    wait_for(lambda: gateway.get("/otel/grpc?id=grpc")[0] == 200 and gateway.metric(
        "yumen_sink_entries_total", plugin="opentelemetry", sink=f"http://127.0.0.1:{ports['grpc']}", result="sent"), 15, "spans over gRPC")
    records.spans.clear()
    check_whole(scene, gateway, [sinks[0]])
