"""VictoriaLogs: loki-logger, elasticsearch-logger, http-logger (JSON lines, Datadog's log API), syslog, log records by OTLP."""

import json
import urllib.parse

from scene import Scene, fetch, free_port, program
from sinks import FORMAT, Sink, id_of, parse, prove, resources


def run(scene: Scene):
    http, tcp = free_port(), free_port()
    server = scene.server("victorialogs", [program("victorialogs"), f"-storageDataPath={scene.folder}/data", f"-httpListenAddr=127.0.0.1:{http}",
                                           f"-syslog.listenAddr.tcp=127.0.0.1:{tcp}", "-inmemoryDataFlushInterval=1s"], port=http)
    base = f"http://127.0.0.1:{http}"

    def rows(query: str) -> list[dict]:
        url = f"{base}/select/logsql/query?" + urllib.parse.urlencode({"query": query, "limit": 100000})
        return [json.loads(line) for line in fetch(url, seconds=20).decode().split("\n") if line]

    def entries(query: str) -> list[dict]:
        """Rows whose members are their own, or those of the message."""
        return [{**row, **(parse(row.get("_msg", "")) or {})} for row in rows(query)]

    lines = f"{base}/insert/jsonline?_stream_fields=kind&_msg_field=message"
    retry = {"max_retry_count": 1}
    # A tenant of VictoriaLogs is a number.
    tenant = {"tenant_id": "0"}
    sinks = [
        Sink("loki", "loki-logger", {"endpoint_addrs": [base], "endpoint_uri": "/insert/loki/api/v1/push", "timeout": 1000,
                                     "log_labels": {"job": "loki", "route": "$route_id"}, **tenant, **retry},
             lambda: entries('_stream:{job="loki"}')),
        Sink("elastic", "elasticsearch-logger", {"endpoint_addrs": [f"{base}/insert/elasticsearch"], "field": {"index": "requests-{%Y.%m.%d}"},
                                                 "headers": {"VL-Stream-Fields": "kind", "VL-Msg-Field": "message"}, "timeout": 2, **retry},
             lambda: entries('_stream:{kind="elastic"}'), form={"log_format": {**FORMAT, "kind": "elastic", "message": "request"}}),
        Sink("lines", "http-logger", {"uri": lines, "concat_method": "new_line", "timeout": 1, **retry},
             lambda: entries('_stream:{kind="lines"}'), form={"log_format": {**FORMAT, "kind": "lines", "message": "request"}}),
        Sink("datadog", "http-logger", {"uri": f"{base}/insert/datadog/api/v2/logs", "timeout": 1, **retry},
             lambda: entries("service:=datadog"),
             form={"log_format": {**FORMAT, "message": "$real_request_uri", "service": "datadog", "ddsource": "apisix"}}),
        Sink("syslog", "syslog", {"host": "127.0.0.1", "port": tcp, "timeout": 1000, **retry},
             lambda: entries("app_name:=apisix"), confirms=False),
    ]
    upstream = scene.upstream().port
    prove(scene, scene.gateway(resources(sinks, upstream)), sinks, server)

    def records() -> list[dict]:
        return [{"id": id_of("?" + row.get("url.query", "")), "uri": row.get("url.path"), "target": f"{row.get('url.path')}?{row.get('url.query')}",
                 "agent": row.get("user_agent.original"), "method": row.get("http.request.method"),
                 "status": row.get("http.response.status_code")} for row in rows('_stream:{service.name="shop"}')
                # Refused requests have records too.
                if row.get("http.response.status_code") != "400"]

    # The node exports records of all routes, so this one has a gateway of its own.
    sink = Sink("otlp", "otlp-logs", {}, records, pending_max=8192)
    otlp = {"endpoint": f"{base}/insert/opentelemetry", "metrics": False, "logs": True, "service_name": "shop"}
    routes = {"routes": [{"id": "otlp", "uri": "/otlp/*", "upstream": {"nodes": {f"127.0.0.1:{upstream}": 1}}}]}
    prove(scene, scene.gateway(routes, {"observe": {"otlp": otlp}}), [sink], server)
