"""The gateways of a run: how each is started for its class of Ingresses, with the settings of report R2.

Every gateway listens on a port of loopback, as a DaemonSet with host network does, and has as many workers as processors. Access logs
are off, 100 idle connections are kept to each service, and the number of requests per connection is not limited.
"""

import json
import subprocess
from pathlib import Path

from api import ApiAccess
from gateways import ROOT, Process, free_port
from world import NAMESPACE, ShopWorld, ingress_class, named

CACHE = Path.home() / ".cache/yumen-lab"
TRAEFIK = CACHE / "bin/traefik"
CONTROLLER = CACHE / "bin/nginx-ingress-controller"
NGINX_INSTALLATION = CACHE / "ingress-nginx"
NGINX_START = ROOT / "bench/ingress-nginx/start.sh"


class LabSystem:
    """A gateway that serves the Ingresses of its class. `start` renders its files and runs it."""

    name = adapter = ""
    controller = ""
    changes_by = ""
    notes: tuple[str, ...] = ()

    def __init__(self, options):
        self.options = options
        self.files: dict[str, str] = {}
        self.command: list[str] = []

    def program(self) -> Path:
        raise NotImplementedError

    def version(self) -> str | None:
        return None

    def missing(self) -> str | None:
        """The reason why this gateway cannot run here."""
        return None if self.program().exists() else f"{self.program().name} is not installed"

    def hint(self) -> str:
        return f"scripts/deps.sh lab-{self.adapter}"

    def prepare(self, world: ShopWorld) -> None:
        """Objects that the gateway itself needs."""

    def start(self, folder: Path, kubeconfig: Path, port: int, cores: list[int]) -> Process:
        raise NotImplementedError

    def _run(self, args: list[object], log: Path, cores: list[int], env: dict[str, str] | None = None) -> Process:
        self.command = [str(arg) for arg in args]
        pinned = ["taskset", "-c", ",".join(map(str, cores)), *self.command]
        return Process(pinned, log, None, env)


class YumenSystem(LabSystem):
    name = adapter = "yumen"
    controller = "gateway.yumen.io/controller"
    changes_by = "watch of EndpointSlices, without a reload"

    def program(self) -> Path:
        return self.options.yumen

    def version(self) -> str | None:
        return first_line([self.program(), "--version"])

    def hint(self) -> str:
        return "make dist"

    def start(self, folder: Path, kubeconfig: Path, port: int, cores: list[int]) -> Process:
        node = {"listen": [{"address": f"127.0.0.1:{free_port()}"}],
                "kubernetes": {"namespace": NAMESPACE, "identity": "lab", "linger_s": 0,
                               "ingress": {"http_port": free_port(), "https_port": port}},
                "logs": {"access": {"enabled": False}}}
        config, data = folder / "yumen.yaml", folder / "data"
        # JSON is YAML.
        config.write_text(json.dumps(node, indent=1))
        self.files = {"yumen.yaml": config.read_text()}
        return self._run([self.program(), "run", "--kubernetes", "--kubeconfig", kubeconfig, "--config", config, "--workers",
                          len(self.options.gateway_cores), "--data-dir", data, "--admin", "127.0.0.1:0", "--status",
                          f"127.0.0.1:{free_port()}"], folder / "log", cores)


class TraefikSystem(LabSystem):
    name = adapter = "traefik"
    controller = "traefik.io/ingress-controller"
    changes_by = "watch; changes are gathered for 2 s, its default"
    notes = ("built without packages that the lab does not use (bench/traefik)",)
    throttle: str | None = None

    def program(self) -> Path:
        return TRAEFIK

    def version(self) -> str | None:
        path = CACHE / "traefik.version"
        return path.read_text().strip() if path.exists() else None

    def start(self, folder: Path, kubeconfig: Path, port: int, cores: list[int]) -> Process:
        server = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        access, provider = ApiAccess.read(kubeconfig), "--providers.kubernetesingress"
        throttle = [f"--providers.providersthrottleduration={self.throttle}"] if self.throttle else []
        trust = [f"{provider}.certauthfilepath={access.authority}"] if server.startswith("https") else []
        return self._run([self.program(), f"--entrypoints.web.address=127.0.0.1:{free_port()}",
                          f"--entrypoints.websecure.address=127.0.0.1:{port}", "--entrypoints.websecure.http.tls=true",
                          "--serverstransport.maxidleconnsperhost=100", *throttle, provider, f"{provider}.endpoint={server}",
                          f"{provider}.token={access.token}", *trust, f"{provider}.ingressclass={ingress_class(self.name)}",
                          "--log.level=ERROR", "--global.checknewversion=false", "--global.sendanonymoususage=false"],
                         folder / "log", cores, {"GOMAXPROCS": str(len(self.options.gateway_cores))})


class FastTraefikSystem(TraefikSystem):
    name = "traefik-fast"
    changes_by = "watch; changes are gathered for 1 ms"
    throttle = "1ms"


class IngressNginxSystem(LabSystem):
    name = adapter = "ingress-nginx"
    # Its default, which Yumen serves too, would give each gateway the Ingresses of the other.
    controller = "lab.example/ingress-nginx"
    changes_by = "endpoints by its Lua balancer, everything else by a reload"
    notes = ("the newest commit that the Go module proxy serves, with Debian's NGINX and Lua module (bench/ingress-nginx)",)
    settings = {"worker-processes": "1", "max-worker-connections": "10000", "upstream-keepalive-connections": "100",
                "upstream-keepalive-requests": "100000000", "keep-alive-requests": "100000000", "disable-access-log": "true",
                "use-http2": "false"}

    def __init__(self, options):
        super().__init__(options)
        self.stream_port = free_port()

    def program(self) -> Path:
        return CONTROLLER

    def version(self) -> str | None:
        path = CACHE / "nginx-ingress-controller.version"
        return path.read_text().strip() if path.exists() else None

    def _modules(self) -> dict[str, str]:
        """NGINX modules and libraries of the installation, by keys of the ConfigMap."""
        root = NGINX_INSTALLATION / "root/usr/lib"
        names = ("ndk_http_module", "ngx_http_lua_module", "ngx_http_headers_more_filter_module")
        libraries = "x86_64-linux-gnu/lua/5.1/?.so"
        # The controller also writes the configuration of TCP and UDP services, which this build lacks, to a port.
        sink = f"server {{ listen 127.0.0.1:{self.stream_port}; return 444; }}"
        return {"main-snippet": "\n".join(f"load_module {root}/nginx/modules/{name}.so;" for name in names),
                "http-snippet": f'lua_package_cpath "{root}/{libraries};;";\n{sink}'}

    def prepare(self, world: ShopWorld) -> None:
        data = {**self.settings, "worker-processes": str(len(self.options.gateway_cores)), **self._modules()}
        pod = named("v1", "Pod", "ingress-nginx", spec={
            "containers": [{"name": "controller", "image": "registry.example/ingress-nginx:v1"}]})
        # The controller asks for its own pod; it runs on the machine.
        pod["metadata"]["annotations"] = {"yumen.io/outside": "true"}
        pod["metadata"]["labels"] = {"app": "ingress-nginx"}
        world.apply(named("v1", "ConfigMap", "ingress-nginx", data=data), pod)
        self.files = {"configmap.json": json.dumps(data, indent=1).replace(str(Path.home()), "~")}

    def start(self, folder: Path, kubeconfig: Path, port: int, cores: list[int]) -> Process:
        name = ingress_class(self.name)
        ports = {"http-port": free_port(), "https-port": port, "healthz-port": free_port(), "status-port": free_port(),
                 "stream-port": self.stream_port, "default-server-port": free_port()}
        return self._run(["unshare", "-m", NGINX_START, NGINX_INSTALLATION, folder, f"--kubeconfig={kubeconfig}",
                          f"--ingress-class={name}", f"--controller-class={self.controller}",
                          f"--configmap={NAMESPACE}/ingress-nginx", "--update-status=false", "--enable-metrics=false",
                          "--profiling=false", "--post-shutdown-grace-period=0", "--v=0",
                          *(f"--{flag}={value}" for flag, value in ports.items())],
                         folder / "log", cores, {"POD_NAME": "ingress-nginx", "POD_NAMESPACE": NAMESPACE})


class DirectSystem(LabSystem):
    """One replica over TLS without a gateway, a cluster or a change: the floor of the latencies on this machine."""

    name = adapter = "direct"

    def program(self) -> Path:
        return self.options.bench

    def start(self, folder: Path, kubeconfig: Path, port: int, cores: list[int]) -> Process:
        certificate = kubeconfig.parent.parent
        return self._run([self.program(), "upstream", "--listen", "127.0.0.1:0", "--listen-tls", f"127.0.0.1:{port}", "--cert",
                          certificate / "shop.crt", "--key", certificate / "shop.key"], folder / "log", cores)


SYSTEMS = {one.name: one for one in (DirectSystem, YumenSystem, TraefikSystem, FastTraefikSystem, IngressNginxSystem)}
# Peers of the report that cannot be installed, with the reason.
ABSENT = {"nginx-gateway-fabric": "the Go module proxy serves neither the module of NGINX Gateway Fabric nor that of the NGINX agent"}


def first_line(command: list[object]) -> str | None:
    try:
        run = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=20)
    except OSError:
        return None
    return (run.stdout or run.stderr).strip().partition("\n")[0] or None
