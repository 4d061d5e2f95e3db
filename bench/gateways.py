"""The programs of a benchmark: configuration, start, measurement and stop.

Independent of scenarios, except for the names of the flavours of configurations.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import counterparts

ROOT = Path(__file__).resolve().parent.parent
YUMEN = Path(os.environ.get("YUMEN", ROOT / "target/dist/yumen"))
FULL_HANDSHAKE = ROOT / "target/bench/full_handshake.so"
FLOOR = ROOT / "target/bench/floor"
GATEWAY_CORE, LOAD_CORE = 0, 1
SMALL = "hello\n"
INTEROP = ROOT / "target/tools/grpc-interop-server"
CALL = "/grpc.testing.TestService/EmptyCall"
KEY = "bench-key"

# Node settings in addition to the command line; empty to measure the defaults.
YUMEN_NODE = ""


def free_port():
    """A port without a listener."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def on_core(core):
    """Runs in a child before exec: pins it to this core, and ends it with its session."""
    cores = {core} if core is not None else set(range(os.cpu_count()))

    def prepare():
        os.sched_setaffinity(0, cores & os.sched_getaffinity(0) or os.sched_getaffinity(0))

    return prepare


class Process:
    """A started program with its processes and threads."""

    def __init__(self, args, log, core, env=None):
        self.log = open(log, "wb")
        self.child = subprocess.Popen(
            [str(a) for a in args], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            preexec_fn=on_core(core), start_new_session=True, env={**os.environ, **(env or {})})
        self.log_path = log

    def pids(self):
        """The process and its descendants."""
        found, queue = [], [self.child.pid]
        while queue:
            pid = queue.pop()
            found.append(pid)
            try:
                for task in os.listdir(f"/proc/{pid}/task"):
                    queue += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
            except OSError:
                pass
        return found

    def thread_ns(self):
        """CPU time by thread name."""
        found = {}
        for pid in self.pids():
            try:
                for task in os.listdir(f"/proc/{pid}/task"):
                    place = Path(f"/proc/{pid}/task/{task}")
                    name = (place / "comm").read_text().strip()
                    found[name] = found.get(name, 0) + int((place / "schedstat").read_text().split()[0])
            except OSError:
                pass
        return found

    def cpu_ns(self):
        """CPU time of all threads."""
        return sum(self.thread_ns().values())

    def rss_kib(self):
        """Resident memory; pages that several processes share count once."""
        total, pids = 0, self.pids()
        key = "Rss:" if len(pids) == 1 else "Pss:"
        for pid in pids:
            try:
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith(key):
                        total += int(line.split()[1])
            except OSError:
                pass
        return total

    def wait_listening(self, port, seconds=30):
        """Waits until the port accepts."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.child.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                return
            except OSError:
                time.sleep(0.01)
        self.stop()
        tail = Path(self.log_path).read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{self.child.args[0]} does not listen on {port}:\n{tail}")

    def stop(self):
        """Stops the program and its children."""
        pids = self.pids()
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT if "haproxy" in str(self.child.args[0]) else signal.SIGTERM)
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                for pid in pids:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except OSError:
                        pass
                self.child.wait()
        self.log.close()


class Gateway(Process):
    """A gateway with its URLs."""

    http = https = admin = status = None
    # Fields of its requests, beside those of the scenario.
    fields = ()

    def url(self, tls=False, path="/"):
        return f"https://localhost:{self.https}{path}" if tls else f"http://127.0.0.1:{self.http}{path}"


def make_certificate(folder):
    """A self-signed RSA-2048 certificate for localhost; returns (certificate, key) paths."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
        check=True, capture_output=True)
    (folder / "both.pem").write_bytes(cert.read_bytes() + key.read_bytes())
    return cert, key


def make_full_handshake():
    """A library that prevents wrk from resuming TLS sessions. Not in /dev/shm, which may be mounted noexec."""
    FULL_HANDSHAKE.parent.mkdir(parents=True, exist_ok=True)
    source = ROOT / "bench/full_handshake.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", FULL_HANDSHAKE, source, "-ldl"], check=True)


def make_floor():
    """A forwarder without parsing: the cost of the system calls alone."""
    FLOOR.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-O2", "-Wall", "-o", FLOOR, ROOT / "bench/floor.c"], check=True)


def start_floor(folder, name, flavour, upstream, cert):
    port = free_port()
    gateway = Gateway([FLOOR, port, upstream.http], folder / f"{name}.log", GATEWAY_CORE)
    gateway.http = port
    gateway.wait_listening(port)
    return gateway


NGINX_HEAD = """
daemon off; worker_processes 1; worker_rlimit_nofile 65536; pid {folder}/nginx.pid;
error_log {folder}/error.log error;
events {{ worker_connections 16384; multi_accept on; }}
http {{
  access_log off; server_tokens off; sendfile on; tcp_nopush on; tcp_nodelay on;
  keepalive_timeout 300s; keepalive_requests 1000000000; default_type text/plain;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
"""


def nginx(folder, name, body, core, under=()):
    """Writes a configuration with this http block and starts NGINX; under a tool as one process."""
    own = folder / name
    own.mkdir()
    conf = own / "nginx.conf"
    conf.write_text(NGINX_HEAD.format(folder=own) + body + "}\n")
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    single = ["-g", "master_process off;"] if under else []
    return Gateway([*under, program, "-p", own, "-c", conf, "-e", own / "error.log", *single], own / "log", core)


def call_body():
    """A file with an empty gRPC message in its frame."""
    path = ROOT / "target/bench/call"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(5))
    return path


def start_grpc(folder, upstream):
    """gRPC's interop server as an upstream; None unless scripts/deps.sh conformance built it."""
    if not INTEROP.exists():
        return None
    upstream.grpc = free_port()
    server = Process([INTEROP, f"--port={upstream.grpc}", "--use_tls=false"], folder / "interop.log", LOAD_CORE)
    server.wait_listening(upstream.grpc)
    return server


def start_redis(folder, upstream):
    """A Redis for limits; None unless scripts/deps.sh bench installed one."""
    if not shutil.which("redis-server"):
        return None
    upstream.redis = free_port()
    server = Process(["redis-server", "--port", upstream.redis, "--bind", "127.0.0.1", "--save", "", "--dir", folder],
                     folder / "redis.log", LOAD_CORE)
    server.wait_listening(upstream.redis)
    return server


def start_upstream(folder):
    """The upstream of every gateway: small and 1 KB bodies from memory, 100 KB from a cached file."""
    (folder / "100k").write_bytes(b"x" * 102400)
    port, h2c = free_port(), free_port()
    body = f"""
  open_file_cache max=10 inactive=1h; open_file_cache_valid 1h;
  server {{
    listen 127.0.0.1:{port} backlog=16384;
    listen 127.0.0.1:{h2c} http2 backlog=16384;
    location = /1k {{ return 200 "{'x' * 1024}"; }}
    location = /100k {{ root {folder}; }}
    location = /log {{ client_max_body_size 64m; return 204; }}
    location = /v1/traces {{ client_max_body_size 64m; return 200; }}
    location / {{ return 200 "{SMALL.strip()}\\n"; }}
  }}
"""
    upstream = nginx(folder, "upstream", body, LOAD_CORE)
    upstream.wait_listening(port)
    upstream.http, upstream.h2c, upstream.grpc, upstream.redis, upstream.either = port, h2c, None, None, None
    upstream.counterpart, upstream.receiver = None, port
    return upstream


def route_names(flavour):
    """Number of routes of a flavour besides the catch-all."""
    return int(flavour.split("-")[1]) if flavour.startswith("routes-") else 0


def start_nginx(folder, name, flavour, upstream, cert, under=()):
    http, https = free_port(), free_port()
    proxy = "proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection \"\";"
    limits = ""
    location = f"location / {{ {proxy} }}"
    if flavour == "mock":
        location = f'location / {{ return 200 "{SMALL.strip()}\\n"; }}'
    if flavour in ("key-auth", "key-auth+limit-count"):
        limits += f'map $http_apikey $denied {{ default 1; "{KEY}" 0; }}\n'
        location = location.replace("{ ", "{ if ($denied) { return 401; } ", 1)
    if flavour in ("limit-count", "key-auth+limit-count"):
        limits += "limit_req_zone $binary_remote_addr zone=z:1m rate=1000000r/s;\n"
        location = location.replace("{ ", "{ limit_req zone=z burst=1000000 nodelay; ", 1)
    if flavour == "grpc":
        location = f"location / {{ grpc_pass grpc://127.0.0.1:{upstream.grpc}; }}"
    routes = "".join(f"location = /r/{i} {{ {proxy} }}\n" for i in range(route_names(flavour)))
    if flavour == "upgrade":
        routes = ("location = /ws { proxy_pass http://up; proxy_http_version 1.1; "
                  "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection \"upgrade\"; }")
    speaks = " http2" if flavour in ("h2", "grpc") else ""
    body = f"""
  upstream up {{ server 127.0.0.1:{upstream.http}; keepalive 256; keepalive_requests 1000000000; }}
  ssl_certificate {cert[0]}; ssl_certificate_key {cert[1]};
  ssl_session_cache shared:s:10m; ssl_session_tickets on; ssl_protocols TLSv1.2 TLSv1.3;
  {limits}
  server {{
    listen 127.0.0.1:{http}{speaks} deferred reuseport backlog=16384;
    listen 127.0.0.1:{https} ssl{speaks} deferred reuseport backlog=16384;
    {location}
    {routes}
  }}
"""
    gateway = nginx(folder, name, body, None if under else GATEWAY_CORE, under)
    gateway.http, gateway.https = http, https
    gateway.wait_listening(http, 60)
    return gateway


HAPROXY_DEFAULTS = """
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  timeout http-keep-alive 300s"""
HAPROXY_ANSWER = f'http-request return status 200 content-type text/plain string "{SMALL.strip()}\\n"'


def run_haproxy(conf, log, core, port):
    program = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    running = Gateway([program, "-db", "-f", conf], log, core)
    running.wait_listening(port)
    return running


def start_haproxy(folder, name, flavour, upstream, cert):
    http, https = free_port(), free_port()
    conf = folder / f"{name}.cfg"
    conf.write_text(f"""
global
  nbthread 1
  maxconn 4096
  tune.ssl.default-dh-param 2048
{HAPROXY_DEFAULTS}
  http-reuse always
frontend f
  bind 127.0.0.1:{http} defer-accept backlog 16384
  bind 127.0.0.1:{https} ssl crt {folder}/both.pem alpn http/1.1 defer-accept backlog 16384
  {HAPROXY_ANSWER if flavour == "mock" else ""}
  default_backend b
backend b
  server s 127.0.0.1:{upstream.http} pool-max-conn 256
""")
    gateway = run_haproxy(conf, folder / f"{name}.log", GATEWAY_CORE, http)
    gateway.http, gateway.https = http, https
    return gateway


def start_either(folder, upstream):
    """An upstream with the small response over HTTP/1.1 and HTTP/2 on one port: HAProxy, from memory. The cost of the
    gateway for both protocols is compared with the same server. Sets `upstream.either` to its port."""
    upstream.either = free_port()
    conf = folder / "either.cfg"
    conf.write_text(f"""
global
  nbthread 1
  maxconn 4096
{HAPROXY_DEFAULTS}
frontend f
  bind 127.0.0.1:{upstream.either} backlog 16384
  {HAPROXY_ANSWER}
""")
    return run_haproxy(conf, folder / "either.log", LOAD_CORE, upstream.either)


def find_envoy():
    """Envoy's binary from scripts/deps.sh lab; None without it."""
    here = Path.home() / ".cache/yumen-lab/bin"
    return shutil.which("envoy", path=f"{here}{os.pathsep}{os.environ['PATH']}")


def start_envoy(folder, name, flavour, upstream, cert):
    """Envoy for gRPC calls: HTTP/2 on both sides, one worker, no log."""
    assert flavour == "grpc", flavour
    http = free_port()
    address = lambda port: {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    extension = "type.googleapis.com/envoy.extensions"
    router = {"name": "router", "typed_config": {"@type": f"{extension}.filters.http.router.v3.Router"}}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "up", "timeout": "0s"}}
    manager = {
        "@type": f"{extension}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in", "codec_type": "AUTO", "generate_request_id": False, "http_filters": [router],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    speaks = {"@type": f"{extension}.upstreams.http.v3.HttpProtocolOptions",
              "explicit_http_config": {"http2_protocol_options": {}}}
    cluster = {
        "name": "up", "type": "STATIC", "connect_timeout": "5s",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": speaks},
        "load_assignment": {"cluster_name": "up", "endpoints": [
            {"lb_endpoints": [{"endpoint": {"address": address(upstream.grpc)}}]}]},
        "circuit_breakers": {"thresholds": [{"max_connections": 65536, "max_pending_requests": 65536,
                                             "max_requests": 1000000, "max_retries": 3}]},
    }
    listener = {"address": address(http), "filter_chains": [
        {"filters": [{"name": "http", "typed_config": manager}]}]}
    conf = folder / f"{name}.json"
    conf.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}))
    args = [find_envoy(), "-c", conf, "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
    gateway = Gateway(args, folder / f"{name}.log", GATEWAY_CORE)
    gateway.http = http
    gateway.wait_listening(http, 60)
    return gateway


def routes_file(flavour, upstream, cert, marker=0, port=0):
    """The routes of a flavour, in the standalone file format: one flow mapping per line. `port` is for the listener of
    the flavour "gateway"."""
    plugins = {}
    if flavour == "mock":
        plugins["mocking"] = {"response_status": 200, "content_type": "text/plain", "response_example": SMALL,
                              "with_mock_header": False}
    if flavour in ("key-auth", "key-auth+limit-count"):
        plugins["key-auth"] = {}
    if flavour in ("limit-count", "key-auth+limit-count"):
        plugins["limit-count"] = {"count": 1000000000, "time_window": 3600, "key_type": "var",
                                  "key": "remote_addr", "policy": "local", "rejected_code": 503}
    if flavour in ("limit-count-redis", "limit-count-delayed"):
        plugins["limit-count"] = {"count": 1000000000, "time_window": 3600, "key": "remote_addr", "policy": "redis",
                                  "redis_host": "127.0.0.1", "redis_port": upstream.redis,
                                  "sync_interval": 0.1 if flavour == "limit-count-delayed" else -1}
    if flavour == "prometheus":
        plugins["prometheus"] = {}
    if flavour in ("jwt-jwks", "oidc-session"):
        plugins["openid-connect"] = counterparts.openid_connect(flavour, upstream.counterpart)
    if flavour == "http-logger":
        plugins["http-logger"] = {"uri": f"http://127.0.0.1:{upstream.receiver}/log"}
    if flavour == "otel-1pct":
        share = {"name": "trace_id_ratio", "options": {"fraction": 0.01}}
        plugins["opentelemetry"] = {"sampler": share}
    endpoint, how = upstream.http, {}
    if flavour == "grpc":
        endpoint, how = upstream.grpc, {"scheme": "grpc"}
    if flavour == "h2c-nginx":
        endpoint, how = upstream.h2c, {"http_version": "2"}
    if flavour in ("h1-upstream", "h2c-upstream"):
        endpoint = upstream.either
    if flavour == "h2c-upstream":
        how = {"http_version": "2"}
    lines = ["upstreams:"]
    lines.append("  - " + json.dumps({"id": "up", "type": "roundrobin", "nodes": {f"127.0.0.1:{endpoint}": 1}, **how}))
    if flavour == "gateway":
        lines += [
            "listeners:",
            "  - " + json.dumps({"id": "web", "address": f"127.0.0.1:{port}", "protocol": "http"}),
            "scopes:",
            "  - " + json.dumps({"id": "named", "listeners": ["web"], "hosts": ["127.0.0.1"]}),
            "  - " + json.dumps({"id": "other", "listeners": ["web"], "hosts": ["*.example.com"]}),
        ]
    lines.append("routes:")
    scopes = {"scopes": ["named"]} if flavour == "gateway" else {}
    lines.append("  - " + json.dumps({"id": "all", "uri": "/*", "upstream_id": "up", "plugins": plugins, **scopes}))
    if flavour == "upgrade":
        lines.append("  - " + json.dumps({"id": "ws", "uri": "/ws", "upstream_id": "up", "enable_websocket": True}))
    lines += (f'  - {{"id": "r{i}", "uri": "/r/{i}", "upstream_id": "up"}}' for i in range(route_names(flavour)))
    if marker:
        lines.append("  - " + json.dumps({"id": "marker", "uri": f"/marker/{marker}", "plugins": {
            "mocking": {"response_status": 200, "response_example": str(marker)}}}))
    if "key-auth" in plugins:
        lines.append("consumers:")
        lines.append("  - " + json.dumps({"username": "bench", "plugins": {"key-auth": {"key": KEY}}}))
    if flavour == "otel-1pct":
        lines.append("plugin_metadata:")
        lines.append("  - " + json.dumps({"id": "opentelemetry",
                                          "collector": {"address": f"127.0.0.1:{upstream.receiver}"}}))
    lines.append("ssls:")
    lines.append("  - " + json.dumps({"id": "tls", "snis": ["localhost"], "cert": cert[0].read_text(),
                                      "key": cert[1].read_text()}))
    return "\n".join(lines) + "\n#END\n"


def run_yumen(log, *more, core=GATEWAY_CORE, under=()):
    """A gateway with one worker on its own ports; `more` are the arguments for its configuration source."""
    ports = {option: free_port() for option in ("listen", "listen-tls", "admin", "status")}
    listen = [word for option, port in ports.items() for word in (f"--{option}", f"127.0.0.1:{port}")]
    gateway = Gateway([*under, YUMEN, "run", "--workers", "1", *listen, *more], log, core)
    gateway.http, gateway.https, gateway.admin, gateway.status = ports.values()
    return gateway


def start_yumen(folder, name, flavour, upstream, cert, core=GATEWAY_CORE, wait=True, under=()):
    own = folder / name
    own.mkdir()
    gateway_routes = own / "routes.yaml"
    listener = free_port() if flavour == "gateway" else 0
    gateway_routes.write_text(routes_file(flavour, upstream, cert, port=listener))
    more = ["--file", gateway_routes, "--data-dir", own / "data"]
    if YUMEN_NODE:
        (own / "yumen.yaml").write_text(YUMEN_NODE)
        more += ["--config", own / "yumen.yaml"]
    gateway = run_yumen(own / "log", *more, core=core, under=under)
    gateway.routes = gateway_routes
    gateway.http = listener or gateway.http
    if wait:
        gateway.wait_listening(gateway.http, 60)
    return gateway


def metric(gateway, name, labels=""):
    """Sum over the series of a metric of yumen that have this text among their labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.status}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    found = re.findall(rf"^{name}(?:{{([^}}]*)}})? (\S+)$", text, re.M)
    return sum(float(value) for present, value in found if labels in present)


START = {"yumen": start_yumen, "nginx": start_nginx, "haproxy": start_haproxy, "floor": start_floor,
         "envoy": start_envoy}


def answers(url, seconds, headers=None, pause=0.001):
    """Seconds until the URL responds with 200; None after the timeout."""
    begun = time.monotonic()
    request = urllib.request.Request(url, headers=headers or {})
    while time.monotonic() - begun < seconds:
        try:
            with urllib.request.urlopen(request, timeout=2) as reply:
                if reply.status == 200:
                    return time.monotonic() - begun
        except OSError:
            pass
        time.sleep(pause)
    return None
