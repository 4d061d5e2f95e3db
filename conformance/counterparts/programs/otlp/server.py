"""Takes OTLP over HTTP and gRPC with the protocol's own definitions, and writes spans and names of metrics as JSON lines.

Usage: server.py LIBRARIES HTTP-PORT GRPC-PORT FILE
"""

import json
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sys.path.insert(0, sys.argv[1])

import grpc  # noqa: E402 (needs the path)
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics  # noqa: E402
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces  # noqa: E402
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as services  # noqa: E402

LOCK = threading.Lock()
OUT = open(sys.argv[4], "a", encoding="utf-8")


def attributes(pairs) -> dict:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def write(rows: list[dict]):
    with LOCK:
        OUT.write("".join(json.dumps(row) + "\n" for row in rows))
        OUT.flush()


def take_spans(request):
    write([{"trace": span.trace_id.hex(), "span": span.span_id.hex(), "parent": span.parent_span_id.hex(), "name": span.name,
            "kind": span.kind, "ns": span.end_time_unix_nano - span.start_time_unix_nano, "error": span.status.code == 2,
            "tags": attributes(span.attributes), "resource": attributes(resource.resource.attributes)}
           for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans])


def take_metrics(request):
    write([{"metric": metric.name, "points": len(getattr(metric, metric.WhichOneof("data")).data_points)}
           for resource in request.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, answer = 200, b""
        try:
            if self.headers["Content-Type"] != "application/x-protobuf":
                status = 415
            elif self.path == "/v1/traces":
                take_spans(traces.ExportTraceServiceRequest.FromString(body))
            elif self.path == "/v1/metrics":
                take_metrics(metrics.ExportMetricsServiceRequest.FromString(body))
            else:
                status = 404
        except Exception as error:  # noqa: BLE001 (the parser's errors have no common class)
            status, answer = 400, str(error).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class TraceService(services.TraceServiceServicer):
    def Export(self, request, context):
        take_spans(request)
        return traces.ExportTraceServiceResponse()


server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
services.add_TraceServiceServicer_to_server(TraceService(), server)
server.add_insecure_port(f"127.0.0.1:{sys.argv[3]}")
server.start()
ThreadingHTTPServer.daemon_threads = True
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
