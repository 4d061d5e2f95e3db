"""One container of a pod: its process, its restarts, its log and its probes."""

import asyncio
import contextlib
import os
import signal
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path

import network
from api import KubeObject
from volumes import PodError

START_SCRIPT = Path(__file__).resolve().parent / "container.sh"
RESTART_SECONDS_MAX = 10.0
# Poll of a readiness probe until its first success, and of the sockets of a container without a probe.
FIRST_PROBE_SECONDS = 0.1
# A container without a probe is ready once it listens, or after this time.
LISTEN_SECONDS = 2.0
LOG_CHUNK = 64 * 1024


@dataclass(frozen=True)
class ContainerCommand:
    """Everything that the start of a container needs."""

    program: Path
    arguments: list[str]
    environment: dict[str, str]
    mounts: list[tuple[Path, str]]
    user: str
    is_writable: bool
    namespace: str


@dataclass
class ContainerState:
    """Facts for the status of the pod."""

    is_running: bool = False
    is_ready: bool = False
    restarts: int = 0
    started: str = ""
    exit_code: int | None = None


@dataclass
class ContainerRun:
    """A container from its first start until `terminate`."""

    name: str
    folder: Path
    command: ContainerCommand
    state: ContainerState = field(default_factory=ContainerState)
    process: asyncio.subprocess.Process | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    async def run_once(self) -> int:
        """Starts the process, copies its output to the log, and returns its exit code."""
        command = self.command
        root = self.folder / f"{self.name}.root"
        root.mkdir(parents=True, exist_ok=True)
        mounts = [part for path, mount in command.mounts for part in (str(path), mount)]
        # setpriv and ip are replaced by what they start, so the process that gets the signals is the program.
        self.process = await asyncio.create_subprocess_exec(
            "setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", command.namespace, str(START_SCRIPT), str(root),
            str(command.program), command.user, "writable" if command.is_writable else "read-only", *mounts, "--",
            *command.arguments, env=command.environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True)
        self.state.is_running, self.state.started = True, timestamp(0)
        self.ended.clear()
        self.started.set()
        copying = asyncio.create_task(self._copy_log(self.process))
        code = await self.process.wait()
        # Descendants may hold the pipe open; they end with the container.
        self._signal_group(signal.SIGKILL)
        await copying
        self.state.is_running, self.state.is_ready, self.state.exit_code = False, False, code
        self.started.clear()
        self.ended.set()
        return code

    async def _copy_log(self, process: asyncio.subprocess.Process) -> None:
        """Every line gets the time at which it was read."""
        assert process.stdout
        rest = b""
        with open(self.log, "ab", buffering=0) as log:
            while chunk := await process.stdout.read(LOG_CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                if lines:
                    now = timestamp(6).encode()
                    log.write(b"".join(now + b" " + line + b"\n" for line in lines))
            if rest:
                log.write(timestamp(6).encode() + b" " + rest + b"\n")

    async def terminate(self, grace_seconds: float) -> None:
        """SIGTERM to the program, then SIGKILL to its group. `run_once` returns afterwards."""
        process = self.process
        if not process or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM if grace_seconds > 0 else signal.SIGKILL)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), max(grace_seconds, 0.01))
            return
        self._signal_group(signal.SIGKILL)
        await process.wait()

    def kill(self) -> None:
        """SIGKILL, without waiting."""
        if self.process and self.process.returncode is None:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: int) -> None:
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    async def wait_listening(self) -> None:
        """Waits until the container without a probe can be expected to respond."""
        end = time.monotonic() + LISTEN_SECONDS
        while time.monotonic() < end and self.state.is_running:
            if self.process and network.is_listening(self.process.pid, self.command.namespace):
                return
            await asyncio.sleep(FIRST_PROBE_SECONDS)


@dataclass(frozen=True)
class ContainerProbe:
    """A probe of a container, by HTTP or by a TCP connection."""

    host: str
    port: int
    tls: bool
    # None: a TCP connection suffices.
    path: str | None
    fields: dict[str, str]
    period_s: float
    delay_s: float
    timeout_s: float
    failures: int
    successes: int

    @staticmethod
    def read(probe: KubeObject, container: KubeObject, address: str) -> "ContainerProbe":
        action = probe.get("httpGet") or probe.get("tcpSocket")
        if not action:
            raise PodError(f"container {container['name']}: unsupported probe {sorted(probe)}")
        fields = {entry["name"]: entry["value"] for entry in action.get("httpHeaders") or []}
        return ContainerProbe(
            action.get("host", address), port_number(action["port"], container), action.get("scheme") == "HTTPS",
            action.get("path", "/") if "httpGet" in probe else None, fields, probe.get("periodSeconds", 10),
            probe.get("initialDelaySeconds", 0), probe.get("timeoutSeconds", 1), probe.get("failureThreshold", 3),
            probe.get("successThreshold", 1))

    async def succeeds(self) -> bool:
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._attempt()
        except (OSError, TimeoutError, ValueError, IndexError):
            return False

    async def _attempt(self) -> bool:
        tls = ssl._create_unverified_context() if self.tls else None
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=tls)
        try:
            if self.path is None:
                return True
            fields = {"Host": f"{self.host}:{self.port}", "User-Agent": "kube-probe", "Connection": "close"} | self.fields
            head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            writer.write(f"GET {self.path} HTTP/1.1\r\n{head}\r\n".encode())
            status = int((await reader.readline()).split()[1])
            return 200 <= status < 400
        finally:
            writer.close()


def port_number(port: int | str, container: KubeObject) -> int:
    """The number of a port that is given by number or by name."""
    if isinstance(port, int):
        return port
    for declared in container.get("ports") or []:
        if declared.get("name") == port:
            return declared["containerPort"]
    raise PodError(f"container {container['name']} has no port {port}")


def timestamp(digits: int) -> str:
    """The time in RFC 3339, UTC, with fractional digits."""
    now = time.time()
    fraction = f".{int(now % 1 * 10**digits):0{digits}d}" if digits else ""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + fraction + "Z"
