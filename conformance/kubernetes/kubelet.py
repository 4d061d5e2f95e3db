#!/usr/bin/env python3
"""A stand-in for the node of a cluster: kubelet, network and load balancer, without containers.

Each pod gets a network namespace with an address (`network.py`); its containers are programs of this machine, chosen by the name
of the image, in a root directory of their own (`container.sh`). Services of type LoadBalancer get addresses that this machine
reaches (`balancer.py`). It prints `ready` once it follows the cluster. SIGTERM and SIGINT end all pods and remove all namespaces;
the pods' objects stay.
Needs root. Usage: conformance/kubernetes/kubelet.py --kubeconfig FILE --image NAME=PROGRAM... [--folder FOLDER]
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import network
from api import STRATEGIC_PATCH, ApiAccess, ApiClient, ApiError, KubeObject, WatchCallback
from balancer import ServiceBalancer
from pod import NodeContext, PodRun
from podlogs import LogServer
from volumes import NODE_NAME

RELAY_CHUNK = 64 * 1024
# Threads for requests and commands of pods that start at the same time.
THREADS = 64


def say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)


class Kubelet:
    """The node. `run` returns after a signal."""

    def __init__(self, kubeconfig: Path, images: dict[str, Path], folder: Path):
        self.access = ApiAccess.read(kubeconfig)
        self.api = ApiClient(self.access)
        self.folder = folder
        self.context = NodeContext(self.api, images, folder, say)
        self.pods: dict[str, PodRun] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.number = 0
        self.stop = threading.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS))
        ending = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ending.set)
        logs = LogServer(self.folder)
        balancing: asyncio.Task[None] | None = None
        try:
            await asyncio.to_thread(network.set_up)
            await self._serve_api()
            self._register(logs.port)
            balancer = ServiceBalancer(self.api, say)
            balancing = self._keep(balancer.run())
            self._watch("/api/v1/services", balancer.on_service)
            self._watch("/apis/discovery.k8s.io/v1/endpointslices", balancer.on_slice)
            self._watch("/api/v1/pods", self._on_pod)
            say("ready")
            await ending.wait()
        finally:
            self.stop.set()
            if balancing:
                balancing.cancel()
            await self._end_pods()
            await asyncio.to_thread(network.tear_down)
            logs.stop()

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that this object refers to, since the event loop does not."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def _watch(self, path: str, callback: WatchCallback) -> None:
        """Follows objects in a thread; the callback runs on the event loop."""
        loop = asyncio.get_running_loop()

        def forward(kind: str, value: Any) -> None:
            if not self.stop.is_set():
                loop.call_soon_threadsafe(callback, kind, value)

        threading.Thread(target=self.api.watch, args=(path, forward, self.stop), daemon=True).start()

    def _register(self, log_port: int) -> None:
        """Creates the node; the API server asks it for logs on loopback."""
        labels = {"kubernetes.io/hostname": NODE_NAME, "kubernetes.io/os": "linux"}
        try:
            self.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node",
                                              "metadata": {"name": NODE_NAME, "labels": labels}})
        except ApiError as error:
            if error.status != 409:
                raise
        status = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                  "daemonEndpoints": {"kubeletEndpoint": {"Port": log_port}},
                  "conditions": [{"type": "Ready", "status": "True", "reason": "Running"}]}
        self.api.patch(f"/api/v1/nodes/{NODE_NAME}/status", {"status": status}, STRATEGIC_PATCH)
        # The API server marks every new node as not ready; the controller that removes the mark does not run here.
        self.api.patch(f"/api/v1/nodes/{NODE_NAME}", {"spec": {"taints": None}})

    def _on_pod(self, kind: str, value: KubeObject | list[KubeObject]) -> None:
        if isinstance(value, list):
            for uid in set(self.pods) - {pod["metadata"]["uid"] for pod in value}:
                self.pods[uid].forget()
            for pod in value:
                self._on_pod("MODIFIED", pod)
            return
        uid = value["metadata"]["uid"]
        run = self.pods.get(uid)
        if kind == "DELETED":
            if run:
                run.forget()
        elif run:
            run.update(value)
        else:
            self.number += 1
            self.pods[uid] = PodRun(self.context, value, self.number)
            self.pods[uid].update(value)
            self._keep(self._run_pod(uid))

    async def _run_pod(self, uid: str) -> None:
        run = self.pods[uid]
        begin = time.monotonic()
        say(f"pod {run.name} {run.address} starts")
        await run.run()
        say(f"pod {run.name} ended after {time.monotonic() - begin:.1f} s")
        del self.pods[uid]

    async def _end_pods(self) -> None:
        """Ends the processes; the objects stay, as at the end of a real node."""
        for run in list(self.pods.values()):
            run.forget()
        pods = [task for task in self.tasks if not task.done()]
        if pods:
            await asyncio.wait(pods, timeout=1)
        for task in pods:
            task.cancel()
        await asyncio.gather(*pods, return_exceptions=True)

    async def _serve_api(self) -> None:
        """The API server at its address within pods, by a relay to its port on loopback."""
        listener = network.listen_within(network.NODE_NAMESPACE, network.API_SERVICE, 443)
        await asyncio.start_server(self._relay, sock=listener)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(self.access.host, self.access.port)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))
        for one in (writer, there[1]):
            one.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies one direction; its end is passed on, while the other direction goes on."""
    try:
        while chunk := await reader.read(RELAY_CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.transport.abort()


def main() -> None:
    parser = argparse.ArgumentParser(description="A node without containers.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="as cluster.py writes it")
    parser.add_argument("--image", action="append", default=[], metavar="NAME=PROGRAM",
                        help="program of an image, by the last part of the image's name without its tag")
    parser.add_argument("--folder", type=Path, help="folder of volumes and logs [default: a temporary one]")
    args = parser.parse_args()
    if not network.is_permitted():
        sys.exit("kubelet: network namespaces need root")
    images = {name: Path(path).resolve() for name, _, path in (image.partition("=") for image in args.image)}
    with tempfile.TemporaryDirectory(prefix="yumen-kubelet-") as temporary:
        folder = (args.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            asyncio.run(Kubelet(args.kubeconfig, images, folder).run())
        except (json.JSONDecodeError, OSError, ApiError, network.NetworkError) as error:
            sys.exit(f"kubelet: {error}")


if __name__ == "__main__":
    main()
