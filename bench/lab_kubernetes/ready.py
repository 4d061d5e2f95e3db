"""The time from the start of a gateway until many Ingresses are served, each with a Service and an EndpointSlice of its own."""

import json
import time
from pathlib import Path

from api import KubeObject
from fixture import wait_for
from gateways import free_port
from measure import is_routed
from systems import LabSystem
from world import INGRESSES, NAMESPACE, PORT, ShopWorld, ingress, named

# Ingresses of the whole range that are asked.
SAMPLES = 50
WAIT_SECONDS = 180
SETTLE_SECONDS = 3


def create(world: ShopWorld, count: int, gateways: list[str]) -> None:
    """Services with one endpoint each, and Ingresses of each gateway for them."""
    address = world.pods()[0]["status"]["podIP"]
    services, slices, ingresses = [], [], []
    for number in range(count):
        name = f"one-{number}"
        services.append(named("v1", "Service", name, spec={"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}))
        one = named("discovery.k8s.io/v1", "EndpointSlice", name, addressType="IPv4", ports=[{"name": "http", "port": PORT}],
                    endpoints=[{"addresses": [address], "conditions": {"ready": True}}])
        one["metadata"]["labels"] = {"kubernetes.io/service-name": name}
        slices.append(one)
        ingresses += [ingress(f"{name}-{gateway}", gateway, f"host-{number}.example", service=name, tls=False)
                      for gateway in gateways]
    world.create(f"/api/v1/namespaces/{NAMESPACE}/services", services)
    world.create(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", slices)
    world.create(INGRESSES, ingresses)


def measure_ready(world: ShopWorld, systems: list[LabSystem], options) -> int:
    """Measures every gateway in turn, `--rounds` times."""
    systems = [system for system in systems if system.controller]
    begin = time.monotonic()
    create(world, options.ready, [system.name for system in systems])
    print(f"{options.ready} Ingresses in namespace {NAMESPACE} created in {time.monotonic() - begin:.0f} s", flush=True)
    found: dict[str, list[KubeObject]] = {system.name: [] for system in systems}
    for number in range(options.rounds):
        for system in systems:
            folder = options.out / "rounds" / f"ready-{number}-{system.name}"
            folder.mkdir(parents=True)
            one = start_once(world, system, options, folder)
            found[system.name].append(one)
            print(f"{system.name:<14} {options.ready} Ingresses: {one['seconds']:.2f} s, {one['rss_mib']:.0f} MiB", flush=True)
    (options.out / "ready.json").write_text(json.dumps({"ingresses": options.ready, "rounds": found}, indent=1) + "\n")
    return 0


def start_once(world: ShopWorld, system: LabSystem, options, folder: Path) -> KubeObject:
    """Starts a gateway on all processors and waits until Ingresses of the whole range are served."""
    port = free_port()
    begin = time.monotonic()
    gateway = system.start(folder, world.fixture.cluster.kubeconfig, port, options.all_cores)
    try:
        alive = lambda: gateway.child.poll() is None  # noqa: E731
        step = max(1, options.ready // SAMPLES)
        for number in [*range(0, options.ready, step), options.ready - 1]:
            host = f"host-{number}.example"
            wait_for(f"{system.name}, {host}", lambda host=host: is_routed(port, host, "/"), WAIT_SECONDS, alive)
        took = time.monotonic() - begin
        time.sleep(SETTLE_SECONDS)
        return {"seconds": took, "rss_mib": gateway.rss_kib() / 1024}
    finally:
        gateway.stop()
