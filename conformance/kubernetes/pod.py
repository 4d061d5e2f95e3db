"""The life of one pod: binding, network, volumes, containers, probes, status, termination."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import network
from api import STRATEGIC_PATCH, ApiClient, ApiError, KubeObject
from container import (FIRST_PROBE_SECONDS, RESTART_SECONDS_MAX, ContainerCommand, ContainerProbe, ContainerRun,
                       ContainerState, timestamp)
from network import NetworkError, PodNetwork
from volumes import NODE_NAME, PodError, PodSources, expand

# A pod with this annotation stands for a process of this machine: it gets the machine's address and no process of its own.
OUTSIDE = "yumen.io/outside"


@dataclass(frozen=True)
class NodeContext:
    """What all pods of the node share."""

    api: ApiClient
    images: dict[str, Path]
    folder: Path
    say: Callable[[str], None]


class PodRun:
    """A pod. `run` returns once the pod has ended and its object is deleted."""

    def __init__(self, node: NodeContext, pod: KubeObject, number: int):
        self.node, self.pod, self.number = node, pod, number
        metadata = pod["metadata"]
        self.name = f"{metadata['namespace']}/{metadata['name']}"
        self.path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        self.folder = node.folder / f"{metadata['namespace']}_{metadata['name']}"
        self.is_outside = OUTSIDE in (metadata.get("annotations") or {})
        self.network = None if self.is_outside else PodNetwork(number)
        self.containers: list[ContainerRun] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.ending = asyncio.Event()
        self.is_deleted = False
        self.error: str | None = None
        self.reported: KubeObject = {}
        self.reporting = asyncio.Lock()
        self.since = timestamp(0)
        self.transitions: dict[str, tuple[str, str]] = {}
        self.outside = ContainerState(is_running=True, started=self.since)

    @property
    def address(self) -> str:
        return self.network.address if self.network else network.HOST

    def update(self, pod: KubeObject) -> None:
        """Takes a newer version of the object."""
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self.ending.set()

    def forget(self) -> None:
        """The object is gone: the processes end at once."""
        self.is_deleted = True
        self.ending.set()
        for container in self.containers:
            container.kill()

    async def run(self) -> None:
        try:
            await self._start()
            await self.ending.wait()
            await self._terminate()
        except (PodError, NetworkError, ApiError, OSError) as error:
            self.error = str(error)
            self.node.say(f"pod {self.name}: {error}")
            await self._report()
            await self.ending.wait()
        finally:
            await self._release()

    async def _start(self) -> None:
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        if not spec.get("nodeName"):
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": metadata["name"]},
                       "target": {"apiVersion": "v1", "kind": "Node", "name": NODE_NAME}}
            await asyncio.to_thread(self.node.api.create, f"{self.path}/binding", binding)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self.network:
            await asyncio.to_thread(self.network.set_up)
            for parameter in (spec.get("securityContext") or {}).get("sysctls") or []:
                await asyncio.to_thread(self.network.set_kernel_parameter, parameter["name"], parameter["value"])
            await self._start_containers()
        else:
            for container in spec["containers"]:
                self._watch_readiness(container, None)
        await self._report()

    async def _start_containers(self) -> None:
        sources = PodSources(self.node.api, self.pod, self.address, network.HOST)
        volumes = await asyncio.to_thread(sources.write_volumes, self.folder / "volumes")
        if self.pod["spec"].get("initContainers"):
            raise PodError("spec.initContainers is unsupported")
        for spec in self.pod["spec"]["containers"]:
            command = await asyncio.to_thread(self._command, spec, sources, volumes)
            self.containers.append(ContainerRun(spec["name"], self.folder, command))
        for spec, container in zip(self.pod["spec"]["containers"], self.containers):
            self._spawn(self._keep_running(container))
            self._watch_readiness(spec, container)
            if "livenessProbe" in spec:
                self._spawn(self._check_liveness(ContainerProbe.read(spec["livenessProbe"], spec, self.address), container))

    def _command(self, container: KubeObject, sources: PodSources, volumes: dict[str, Path]) -> ContainerCommand:
        assert self.network
        image = container["image"].split("@")[0].rsplit("/", 1)[-1].split(":")[0]
        program = self.node.images.get(image)
        if not program:
            raise PodError(f"no program for image {container['image']}: --image {image}=PATH")
        environment = sources.environment(container)
        # The first word of a command names the program in the image.
        words = [*(container.get("command") or ())[1:], *(container.get("args") or ())]
        mounts = []
        for mount in container.get("volumeMounts") or []:
            path = volumes[mount["name"]]
            mounts.append((path / mount["subPath"] if mount.get("subPath") else path, mount["mountPath"]))
        security = (self.pod["spec"].get("securityContext") or {}) | (container.get("securityContext") or {})
        user = f"{security.get('runAsUser', 0)}:{security.get('runAsGroup', security.get('runAsUser', 0))}"
        return ContainerCommand(program, [expand(word, environment) for word in words], environment, mounts, user,
                                not security.get("readOnlyRootFilesystem"), self.network.namespace)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def _keep_running(self, container: ContainerRun) -> None:
        """Restarts the process as the restart policy says, later after every failure."""
        policy = self.pod["spec"].get("restartPolicy", "Always")
        pause = 0.5
        while not self.ending.is_set():
            code = await container.run_once()
            await self._report()
            if self.ending.is_set() or policy == "Never" or (policy == "OnFailure" and code == 0):
                return
            self.node.say(f"pod {self.name}: {container.name} ended with {code}, see {container.log}")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.ending.wait(), pause)
            pause = min(pause * 2, RESTART_SECONDS_MAX)
            container.state.restarts += 1

    def _watch_readiness(self, spec: KubeObject, container: ContainerRun | None) -> None:
        state = container.state if container else self.outside
        if "readinessProbe" in spec:
            probe = ContainerProbe.read(spec["readinessProbe"], spec, self.address)
            self._spawn(self._check_readiness(probe, state))
        elif container:
            self._spawn(self._wait_listening(container))
        else:
            state.is_ready = True

    async def _wait_listening(self, container: ContainerRun) -> None:
        """Readiness of a container without a probe, after each of its starts."""
        while True:
            await container.started.wait()
            await container.wait_listening()
            container.state.is_ready = container.state.is_running
            await self._report()
            await container.ended.wait()

    async def _check_readiness(self, probe: ContainerProbe, state: ContainerState) -> None:
        """Probes until the pod has ended, termination included."""
        await asyncio.sleep(probe.delay_s)
        streak = 0
        while True:
            succeeded = state.is_running and await probe.succeeds()
            streak = max(streak, 0) + 1 if succeeded else min(streak, 0) - 1
            was_ready = state.is_ready
            if streak >= probe.successes:
                state.is_ready = True
            elif -streak >= probe.failures:
                state.is_ready = False
            if state.is_ready != was_ready:
                await self._report()
            await asyncio.sleep(probe.period_s if state.is_ready else min(probe.period_s, FIRST_PROBE_SECONDS))

    async def _check_liveness(self, probe: ContainerProbe, container: ContainerRun) -> None:
        await asyncio.sleep(probe.delay_s)
        failures = 0
        while not self.ending.is_set():
            await asyncio.sleep(probe.period_s)
            failures = failures + 1 if container.state.is_running and not await probe.succeeds() else 0
            if failures >= probe.failures and not self.ending.is_set():
                self.node.say(f"pod {self.name}: {container.name} failed its liveness probe")
                failures = 0
                await container.terminate(self._grace())

    def _grace(self) -> float:
        granted = self.pod["metadata"].get("deletionGracePeriodSeconds")
        return granted if granted is not None else self.pod["spec"].get("terminationGracePeriodSeconds", 30)

    async def _terminate(self) -> None:
        """The hook before the end, then SIGTERM; both within the grace period."""
        grace = 0 if self.is_deleted else self._grace()
        names = {container["name"]: container for container in self.pod["spec"]["containers"]}
        await asyncio.gather(*(self._terminate_container(container, names[container.name], grace)
                               for container in self.containers))

    async def _terminate_container(self, container: ContainerRun, spec: KubeObject, grace: float) -> None:
        hook = ((spec.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {}
        pause = min(hook.get("seconds", 0), grace)
        if pause and container.state.is_running:
            await asyncio.sleep(pause)
        # As in Kubernetes, a hook that used up the grace period leaves two seconds.
        await container.terminate(max(grace - pause, 2) if grace else 0)

    async def _release(self) -> None:
        """Ends everything that is left, then deletes the object."""
        for container in self.containers:
            container.kill()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        # A restart may have been on its way.
        for container in self.containers:
            container.kill()
        if self.network:
            await asyncio.to_thread(self.network.tear_down)
        if not self.is_deleted and self.pod["metadata"].get("deletionTimestamp"):
            with contextlib.suppress(ApiError, OSError):
                await asyncio.to_thread(self.node.api.delete, f"{self.path}?gracePeriodSeconds=0")

    async def _report(self) -> None:
        """Writes the status if it changed."""
        async with self.reporting:
            status = self._status()
            if status == self.reported or self.is_deleted:
                return
            try:
                await asyncio.to_thread(self.node.api.patch, f"{self.path}/status", {"status": status}, STRATEGIC_PATCH)
                self.reported = status
            except (ApiError, OSError) as error:
                if not self.ending.is_set():
                    self.node.say(f"pod {self.name}: status: {error}")

    def _status(self) -> KubeObject:
        states = {container.name: container.state for container in self.containers}
        entries = [self._container_status(spec, states.get(spec["name"], self.outside if self.is_outside else None))
                   for spec in self.pod["spec"]["containers"]]
        is_ready = bool(entries) and all(entry["ready"] for entry in entries)
        facts = {"PodScheduled": True, "Initialized": True, "ContainersReady": is_ready, "Ready": is_ready}
        status = {"phase": self._phase(list(states.values())), "startTime": self.since, "hostIP": network.HOST,
                  "hostIPs": [{"ip": network.HOST}], "containerStatuses": entries,
                  "conditions": [self._condition(kind, value) for kind, value in facts.items()]}
        if self.error is None:
            status |= {"podIP": self.address, "podIPs": [{"ip": self.address}]}
        return status

    def _phase(self, states: list[ContainerState]) -> str:
        if self.error is not None:
            return "Pending"
        ended = bool(states) and all(not state.is_running and state.exit_code is not None for state in states)
        policy = self.pod["spec"].get("restartPolicy", "Always")
        if not ended or policy == "Always" or (policy == "OnFailure" and any(state.exit_code for state in states)):
            return "Running"
        return "Failed" if any(state.exit_code for state in states) else "Succeeded"

    def _container_status(self, spec: KubeObject, state: ContainerState | None) -> KubeObject:
        status = {"name": spec["name"], "image": spec["image"], "imageID": spec["image"], "ready": False, "started": False,
                  "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}
        if self.error is not None:
            status["state"] = {"waiting": {"reason": "CreateContainerError", "message": self.error}}
        elif state and state.is_running:
            status |= {"ready": state.is_ready, "started": True, "restartCount": state.restarts,
                       "state": {"running": {"startedAt": state.started}}}
        elif state and state.exit_code is not None:
            reason = "Completed" if state.exit_code == 0 else "Error"
            status |= {"restartCount": state.restarts,
                       "state": {"terminated": {"exitCode": state.exit_code, "reason": reason, "startedAt": state.started}}}
        return status

    def _condition(self, kind: str, value: bool) -> KubeObject:
        """A condition keeps its time until its value changes."""
        text = "True" if value else "False"
        if self.transitions.get(kind, ("", ""))[0] != text:
            self.transitions[kind] = (text, timestamp(0))
        return {"type": kind, "status": text, "lastTransitionTime": self.transitions[kind][1]}
