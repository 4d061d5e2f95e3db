#!/usr/bin/env python3
"""Tries what scripts/release.sh builds, as a new user would: packages in a fresh Debian root, the image in namespaces.

Runs as root, in mount, process and network namespaces of its own. Nothing of this machine is installed or changed.
"""

import argparse
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
INSIDE = "YUMEN_TRIAL_INSIDE"
IMAGE_BYTES_MAX = 20 << 20
# Debian's names of architectures, and those of the kernel and of RPM.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# Wanted by the issue of a newcomer: from the package to the first proxied request.
FIRST_REQUEST_S = 60
# Findings of lintian that are accepted, each with its reason.
LINTIAN_ACCEPTED = {"embedded-library": "a port of libyaml to Rust, which has the texts of the original"}


def say(text: str) -> None:
    print(text, flush=True)


def run(*command: object, check: bool = True, quiet: bool = True, **more) -> subprocess.CompletedProcess:
    words = [str(word) for word in command]
    done = subprocess.run(words, text=True, capture_output=quiet, **more)
    if check and done.returncode != 0:
        raise SystemExit(f"FAILED ({done.returncode}): {' '.join(words)}\n{done.stdout or ''}{done.stderr or ''}")
    return done


def require(condition: object, text: str) -> None:
    if not condition:
        raise SystemExit(f"FAILED: {text}")


def until(what: str, seconds: float, done) -> None:
    end = time.monotonic() + seconds
    while not done():
        require(time.monotonic() < end, f"not within {seconds} s: {what}")
        time.sleep(0.02)


def request(method: str, port: int, path: str, body: str | None = None, headers: dict | None = None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    return response.status, response.read().decode()


def status_pid() -> int:
    return json.loads(request("GET", 9091, "/status")[1])["pid"]


class Root:
    """A Debian root in a directory, with /proc and /dev."""

    def __init__(self, archive: Path):
        self.path = Path(tempfile.mkdtemp(prefix="yumen-root-"))
        run("tar", "-C", self.path, "-xpf", archive)
        run("mount", "-t", "proc", "proc", self.path / "proc")
        run("mount", "--rbind", "/dev", self.path / "dev")

    def run(self, *command: object, **more) -> subprocess.CompletedProcess:
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"}
        return run("chroot", self.path, *command, env=environment, **more)

    def start(self, *command: object, user: str = "yumen") -> subprocess.Popen:
        words = ["chroot", f"--userspec={user}", str(self.path), *map(str, command)]
        log = open(self.path / "tmp/log", "ab")
        return subprocess.Popen(words, stdout=log, stderr=log, cwd="/")

    def log(self) -> str:
        return (self.path / "tmp/log").read_text()

    def file(self, path: str) -> Path:
        return self.path / path.lstrip("/")

    def take(self, package: Path) -> str:
        shutil.copy(package, self.path / "tmp")
        return f"/tmp/{package.name}"


class Load:
    """Requests without a pause, on kept and on new connections, until it is stopped."""

    def __init__(self, port: int, path: str):
        self.port, self.path = port, path
        self.served, self.failed = 0, []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._send, args=(kept,)) for kept in (True, True, False, False)]
        for thread in self.threads:
            thread.start()

    def _send(self, kept: bool) -> None:
        connection = None
        while not self.stopping.is_set():
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
                connection.request("GET", self.path, headers={} if kept else {"Connection": "close"})
                response = connection.getresponse()
                response.read()
                if response.status != 200:
                    self.failed.append(f"status {response.status}")
                self.served += 1
                if not kept or response.will_close:
                    connection.close()
                    connection = None
            except OSError as error:
                self.failed.append(repr(error))
                connection = None
            except http.client.HTTPException as error:
                self.failed.append(repr(error))
                connection = None
            time.sleep(0.002)

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def first_dashboard(key: str) -> None:
    """Opens the dashboard, logs in as its page does, and reads the live traffic."""
    status, page = request("GET", 9180, "/ui/")
    require(status == 200 and "<script" in page, f"the page of the dashboard: {status}")
    connection = http.client.HTTPConnection("127.0.0.1", 9180, timeout=20)
    origin = {"Origin": "http://127.0.0.1:9180", "Sec-Fetch-Site": "same-origin"}
    connection.request("POST", "/yumen/v1/session", headers={**origin, "X-API-KEY": key})
    response = connection.getresponse()
    text = response.read().decode()
    require(response.status in (200, 201), f"the key logs in: {response.status} {text}")
    session = {"Cookie": response.headers["Set-Cookie"].split(";")[0], "X-Yumen-Csrf": json.loads(text)["csrf_token"]}
    status, live = request("GET", 9180, "/yumen/v1/live?rows=routes", headers={**origin, **session})
    require(status == 200 and '"samples"' in live, f"the session sees live traffic: {status} {live}")


def try_deb(archive: Path, first: Path, second: Path) -> None:
    """Installs, serves, upgrades under load, removes and purges."""
    root = Root(archive)
    began = time.monotonic()
    root.run("dpkg", "-i", root.take(first))
    require("yumen:" in root.file("/etc/passwd").read_text(), "the package creates its user")
    conffiles = root.run("dpkg-query", "-W", "-f=${Conffiles}", "yumen").stdout
    require("/etc/yumen/yumen.yaml" in conffiles, f"the settings are a conffile: {conffiles}")
    owner = root.run("stat", "-c", "%U:%G %a", "/var/lib/yumen", "/etc/yumen/yumen.yaml").stdout.split("\n")
    require(owner[:2] == ["yumen:yumen 700", "root:yumen 640"], f"owners and modes: {owner}")
    for path in ("/usr/share/man/man1/yumen.1.gz", "/usr/share/bash-completion/completions/yumen"):
        require(root.file(path).exists(), f"{path} is installed")

    echo = root.start("/usr/bin/yumen", "echo", "127.0.0.1:1980", user="nobody")
    gateway = root.start("/usr/bin/yumen", "run", "--config", "/etc/yumen/yumen.yaml")
    health = ("yumen", "health", "--config", "/etc/yumen/yumen.yaml")
    until("the gateway is ready", 60, lambda: root.run(*health, check=False).returncode == 0)
    # The commands reach the gateway by its socket, without a key.
    rotated = root.run("yumen", "keys", "rotate", "admin", "--config", "/etc/yumen/yumen.yaml").stdout
    key = re.search(r"\b[0-9a-f]{40}\b", rotated).group()
    route = '{"uri": "/first/*", "upstream": {"nodes": {"127.0.0.1:1980": 1}}}'
    answer = request("PUT", 9180, "/apisix/admin/routes/first?wait=applied", route, {"X-API-KEY": key})
    require(answer[0] == 201, f"the route is stored: {answer}")
    answer = request("GET", 9080, "/first/request")
    require(answer[0] == 200, f"the first request is proxied: {answer}")
    proxied = time.monotonic() - began
    first_dashboard(key)
    dashboard = time.monotonic() - began
    say(f"  from the package to the first proxied request: {proxied:.1f} s, to the first dashboard: {dashboard:.1f} s")
    require(dashboard < FIRST_REQUEST_S, f"more than {FIRST_REQUEST_S} s")

    settings = root.file("/etc/yumen/yumen.yaml")
    settings.write_text(settings.read_text() + "\ntimeouts: {idle_ms: 30000}\n")
    before, load = status_pid(), Load(9080, "/first/load")
    time.sleep(1)
    done = root.run("dpkg", "--force-confdef", "--force-confold", "-i", root.take(second))
    until("the successor serves", 30, lambda: status_pid() != before)
    time.sleep(1)
    load.stop()
    say(f"  upgrade under load: {load.served} requests, {len(load.failed)} failed")
    require(load.served > 200 and not load.failed, f"failed during the upgrade: {load.failed[:5]}\n{done.stdout}")
    require("idle_ms: 30000" in settings.read_text(), "the changed conffile stays")
    until("the former process ends", 90, lambda: gateway.poll() is not None)

    # systemd stops the service in the script before the removal.
    successor = status_pid()
    os.kill(successor, 15)
    until("the successor ends", 60, lambda: not Path(f"/proc/{successor}").exists() or is_zombie(successor))
    echo.terminate()
    echo.wait()
    root.run("dpkg", "-r", "yumen")
    require(not root.file("/usr/bin/yumen").exists(), "the binary is removed")
    require(settings.exists() and root.file("/var/lib/yumen/yumen.redb").exists(), "settings and state stay")
    root.run("dpkg", "-P", "yumen")
    require(not root.file("/var/lib/yumen").exists(), "purge removes the state")
    require(not root.file("/etc/yumen").exists(), "purge removes the settings")


class System(Root):
    """A Debian root whose first process is systemd, in cgroup, process and mount namespaces of its own."""

    BOOT = """
        mount --rbind $root $root
        mount -t sysfs -o ro sysfs $root/sys
        mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
        mount -t proc proc $root/proc
        mount -t tmpfs tmpfs $root/run
        cd $root
        pivot_root . mnt
        exec env -i container=docker PATH=/usr/sbin:/usr/bin sh -c "umount -l /mnt; exec /lib/systemd/systemd"
    """

    def __init__(self, archive: Path):
        super().__init__(archive)
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        hierarchy = next(Path(mount[1]) for mount in mounts if mount[2] == "cgroup2")
        self.group = Path(tempfile.mkdtemp(prefix="yumen-trial-", dir=hierarchy))
        enter = f"echo $$ > {self.group}/cgroup.procs; exec unshare --cgroup --mount --pid --fork --kill-child sh -ec "
        script = self.BOOT.replace("$root", str(self.path))
        log = open(self.path / "boot.log", "ab")
        self.unshare = subprocess.Popen(["sh", "-c", enter + f"'{script}'"], stdout=log, stderr=log)
        children = Path(f"/proc/{self.unshare.pid}/task/{self.unshare.pid}/children")
        until("systemd is started", 10, lambda: children.read_text().split())
        self.init = children.read_text().split()[0]
        states = ("running", "degraded")
        until("the system is up", 60, lambda: self.run("systemctl", "is-system-running", check=False).stdout.strip() in states)

    def run(self, *command: object, **more) -> subprocess.CompletedProcess:
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"}
        inside = ["nsenter", "--target", self.init, "--mount", "--pid", "--cgroup", "--root", "--wd"]
        return run(*inside, *command, env=environment, **more)


    def close(self) -> None:
        """Ends all processes of the system and removes its control groups."""
        self.unshare.kill()
        self.unshare.wait()
        until("all processes end", 30, lambda: "populated 0" in (self.group / "cgroup.events").read_text())
        for group in sorted(self.group.rglob("*"), reverse=True):
            if group.is_dir():
                group.rmdir()
        self.group.rmdir()


def try_systemd(archive: Path, first: Path, second: Path) -> None:
    """The package in a system with systemd: the service starts by itself, is upgraded under load, stops at removal."""
    system = System(archive)
    try:
        try_service(system, first, second)
    finally:
        system.close()


def try_service(system: System, first: Path, second: Path) -> None:
    began = time.monotonic()
    installed = system.run("dpkg", "-i", system.take(first))
    try:
        until("the service serves", 20, lambda: system.run("systemctl", "is-active", "yumen", check=False).returncode == 0)
    except SystemExit:
        say(installed.stdout + installed.stderr + system.run("systemctl", "status", "yumen", check=False).stdout)
        say(system.run("journalctl", "--no-pager", "-u", "yumen", "-n", 40, check=False).stdout)
        raise
    require(request("GET", 9080, "/hello")[0] == 200, "the service answers")
    say(f"  from the package to the first response: {time.monotonic() - began:.1f} s")
    main_pid = lambda: system.run("systemctl", "show", "-P", "MainPID", "yumen").stdout.strip()
    before, load = main_pid(), Load(9080, "/hello")
    time.sleep(1)
    done = system.run("dpkg", "-i", system.take(second))
    require("not upgraded" not in done.stderr, done.stderr)
    until("systemd follows the successor", 30, lambda: main_pid() not in (before, "0"))
    time.sleep(1)
    load.stop()
    say(f"  upgrade under load: {load.served} requests, {len(load.failed)} failed")
    require(load.served > 200 and not load.failed, f"failed during the upgrade: {load.failed[:5]}")
    require(system.run("systemctl", "is-active", "yumen").stdout.strip() == "active", "the service is active")
    system.run("dpkg", "-r", "yumen")
    require(system.run("systemctl", "is-active", "yumen", check=False).returncode != 0, "removal stops the service")
    system.run("dpkg", "-P", "yumen")
    require(not system.file("/var/lib/yumen").exists(), "purge removes the state")


def is_zombie(pid: int) -> bool:
    return ") Z" in Path(f"/proc/{pid}/stat").read_text()


def try_lintian(package: Path) -> None:
    found = run("lintian", "--tag-display-limit", "0", "--allow-root", package, check=False).stdout
    errors = [line for line in found.splitlines() if line.startswith("E:")]
    errors = [line for line in errors if line.split()[2] not in LINTIAN_ACCEPTED]
    require(not errors, "lintian:\n" + "\n".join(errors))
    warnings = sum(line.startswith("W:") for line in found.splitlines())
    say(f"  lintian: no errors, {warnings} warnings")


def try_rpm(archive: Path, first: Path, second: Path) -> None:
    """Installs into a root by rpm itself; the dependencies are names of RPM systems, so they are checked apart."""
    requires = run("rpm", "-qp", "--requires", first).stdout
    require("glibc >= 2.31" in requires, f"requires glibc: {requires}")
    require("/etc/yumen/yumen.yaml" in run("rpm", "-qp", "--configfiles", first).stdout, "the settings are a config file")
    root = Root(archive)
    rpm = ("rpm", "--root", root.path, "--dbpath", "/var/lib/rpm", "--nodeps")
    run(*rpm, "-i", first)
    require("yumen:" in root.file("/etc/passwd").read_text(), "the package creates its user")
    require(root.run("yumen", "version").stdout.startswith("yumen "), "the binary runs")
    settings = root.file("/etc/yumen/yumen.yaml")
    settings.write_text(settings.read_text() + "\n# changed\n")
    run(*rpm, "-U", second)
    require("# changed" in settings.read_text(), "the changed settings stay")
    run(*rpm, "-e", "yumen")
    require(not root.file("/usr/bin/yumen").exists(), "the binary is removed")
    require(root.file("/etc/yumen/yumen.yaml.rpmsave").exists(), "changed settings are kept under another name")


def blob(layout: Path, described: dict) -> bytes:
    data = (layout / "blobs/sha256" / described["digest"].removeprefix("sha256:")).read_bytes()
    require(len(data) == described["size"], f"size of {described['digest']}")
    require("sha256:" + hashlib.sha256(data).hexdigest() == described["digest"], f"digest of {described['digest']}")
    return data


def unpacked(layer: bytes) -> bytes:
    return subprocess.run(["zstd", "-d"], input=layer, capture_output=True, check=True).stdout


def try_image(layout: Path) -> None:
    """Unpacks the image of this machine and runs it as its user on a root that cannot be written."""
    index = json.loads((layout / "index.json").read_text())
    manifests = index["manifests"]
    if "image.index" in manifests[0]["mediaType"]:
        manifests = json.loads(blob(layout, manifests[0]))["manifests"]
    for described in manifests:
        manifest = json.loads(blob(layout, described))
        config = json.loads(blob(layout, manifest["config"]))
        layers = [unpacked(blob(layout, layer)) for layer in manifest["layers"]]
        found = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]
        require(found == config["rootfs"]["diff_ids"], "the digests of the unpacked layers")
        size = sum(layer["size"] for layer in manifest["layers"])
        arch = described["platform"]["architecture"]
        say(f"  image for {arch}: {size / 1e6:.1f} MB compressed")
        require(size <= IMAGE_BYTES_MAX or os.environ.get("YUMEN_TRIAL_ANY_SIZE"), f"more than {IMAGE_BYTES_MAX} bytes")
        if MACHINES[arch] == os.uname().machine:
            run_image(layers, config["config"])


def run_image(layers: list[bytes], config: dict) -> None:
    import io

    root = Path(tempfile.mkdtemp(prefix="yumen-image-"))
    for layer in layers:
        tarfile.open(fileobj=io.BytesIO(layer)).extractall(root, filter="fully_trusted", numeric_owner=True)
    names = {path.name for path in root.rglob("*")}
    require(not names & {"sh", "bash", "dash", "busybox", "apt", "perl"}, "the image has no shell")
    for point in ("proc", "dev"):
        (root / point).mkdir(exist_ok=True)
    run("mount", "--bind", root, root)
    run("mount", "-o", "remount,ro,bind", root)
    run("mount", "-t", "proc", "proc", root / "proc")
    run("mount", "--rbind", "/dev", root / "dev")
    run("mount", "-t", "tmpfs", "-o", "uid=65532,gid=65532,mode=0700", "tmpfs", root / "var/lib/yumen")
    environment = dict(pair.split("=", 1) for pair in config["Env"])
    inside = ["/usr/sbin/chroot", f"--userspec={config['User']}", str(root)]
    with tempfile.TemporaryFile() as log:
        gateway = subprocess.Popen([*inside, *config["Entrypoint"], *config["Cmd"]], env=environment, stdout=log, stderr=log)
        test = config["Healthcheck"]["Test"][1:]
        checked = lambda: run(*inside, *test, env=environment, check=False).returncode == 0
        try:
            until("the health check of the image passes", 60, checked)
        except SystemExit:
            log.seek(0)
            say(log.read().decode())
            raise
    require(request("GET", 9080, "/hello")[0] == 200, "the image serves")
    status = Path(f"/proc/{gateway.pid}/status").read_text()
    require(re.search(r"^Uid:\s+65532\s", status, re.M), "the gateway is not root")
    gateway.terminate()
    require(gateway.wait(60) == 0, "SIGTERM ends the gateway")
    require(run(*inside, *test, env=environment, check=False).returncode == 1, "the health check of no gateway fails")


def try_archives(out: Path, version: str) -> None:
    for archive in sorted(out.glob(f"yumen-{version}-linux-*.tar.gz")):
        folder = Path(tempfile.mkdtemp(prefix="yumen-archive-"))
        run("tar", "-C", folder, "-xzf", archive)
        program = next(folder.glob("*/yumen"))
        # A binary of another architecture runs in an emulator, with the libraries of its image.
        arch = archive.name.removesuffix(".tar.gz").rpartition("-")[2]
        emulator = {"amd64": "qemu-x86_64", "arm64": "qemu-aarch64"}[arch]
        is_native = MACHINES[arch] == os.uname().machine
        base = out / "stage" / arch / "base"
        require(is_native or (shutil.which(emulator) and base.exists()), f"{emulator} and {base}, for {archive.name}")
        prefix = [] if is_native else [emulator, "-L", base]
        require(run(*prefix, program, "version").stdout.startswith("yumen "), f"{archive.name} runs")
        symbols = run("readelf", "--version-info", "--wide", program).stdout
        versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", symbols)}
        require(versions, f"{program} names versions of glibc")
        newest = ".".join(map(str, max(versions)))
        say(f"  {archive.name}: runs; needs glibc {newest}")
        if max(versions) > (2, 31):
            require(os.environ.get("YUMEN_TRIAL_ANY_GLIBC"), f"{archive.name} needs glibc {newest}, not 2.31")


def try_sbom(out: Path, version: str) -> None:
    """The bills of materials name the parts of binary and image; the schema was checked when they were written."""
    found = sorted(out.glob(f"yumen-{version}-linux-*.cdx.json"))
    require(found, "a bill of materials")
    for path in found:
        document = json.loads(path.read_text())
        own = document["metadata"]["component"]
        require((own["name"], own["version"]) == ("yumen", version), f"{path.name} describes {own}")
        references = [own["bom-ref"], *(part["bom-ref"] for part in document["components"])]
        require(len(references) == len(set(references)), f"{path.name}: each component once")
        unknown = {one for entry in document["dependencies"] for one in entry["dependsOn"]} - set(references)
        require(not unknown, f"{path.name}: dependencies are components: {unknown}")
        for kind in ("pkg:cargo/tokio@", "pkg:cargo/rustls@", "pkg:npm/preact@", "/libc6@"):
            require(any(kind in one for one in references), f"{path.name} has {kind}")
        unlicensed = [part["name"] for part in document["components"] if part["purl"].startswith("pkg:cargo/") and not part.get("licenses")]
        require(not unlicensed, f"{path.name}: crates without a licence: {unlicensed}")
        say(f"  {path.name}: {len(document['components'])} components")


def try_compose(program: Path) -> None:
    """The files of the quick start agree with each other, and the gateway accepts its routes."""
    import yaml

    folder = REPOSITORY / "deploy/compose"
    document = yaml.safe_load((folder / "compose.yaml").read_text())
    require(set(document) <= {"name", "services", "volumes", "networks", "configs"}, f"members: {set(document)}")
    for name, service in document["services"].items():
        require("image" in service, f"{name} has an image")
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            named = source in (document.get("volumes") or {})
            require(named or (folder / source).exists(), f"{source} of {name} exists")
    run(program, "check", folder / "routes.yaml")


def inside(arguments: argparse.Namespace) -> None:
    run("ip", "link", "set", "lo", "up")
    run("mount", "--make-rprivate", "/")
    out, old, new = arguments.out, arguments.version, arguments.next
    deb = lambda version: next(out.glob(f"yumen_{version}*_{arguments.arch}.deb"))
    rpm_arch = MACHINES[arguments.arch]
    rpm = lambda version: next(out.glob(f"yumen-{version}*.{rpm_arch}.rpm"))
    trials = {
        "archives": lambda: try_archives(out, old),
        "deb": lambda: try_deb(arguments.root, deb(old), deb(new)),
        "systemd": lambda: try_systemd(arguments.system, deb(old), deb(new)),
        "lintian": lambda: try_lintian(deb(old)),
        "rpm": lambda: try_rpm(arguments.root, rpm(old), rpm(new)),
        "image": lambda: try_image(out / "image"),
        "sbom": lambda: try_sbom(out, old),
        "compose": lambda: try_compose(out / "stage" / arguments.arch / "bin/yumen"),
    }
    wanted = arguments.trials or list(trials)
    for name in wanted:
        began = time.monotonic()
        say(f"{name}:")
        trials[name]()
        say(f"  passed in {time.monotonic() - began:.0f} s")
    say(f"{len(wanted)} passed, 0 failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=REPOSITORY / "target/packages")
    parser.add_argument("--version", required=True, help="version of the packages")
    parser.add_argument("--next", required=True, help="version of the packages to upgrade to")
    parser.add_argument("--arch", default="amd64")
    parser.add_argument("--root", type=Path, default=REPOSITORY / "target/packages/root.tar")
    parser.add_argument("--system", type=Path, default=REPOSITORY / "target/packages/system.tar")
    parser.add_argument("trials", nargs="*")
    arguments = parser.parse_args()
    if os.environ.get(INSIDE):
        inside(arguments)
        return
    require(os.geteuid() == 0, "the trial needs root: it makes namespaces and roots")
    for archive, packages in ((arguments.root, []), (arguments.system, ["--include=systemd,dbus"])):
        if not archive.exists():
            say(f"mmdebstrap: {archive.name}")
            # Complete, or not there.
            run("mmdebstrap", "--variant=minbase", "--quiet", *packages, "bookworm", f"{archive}.new.tar")
            Path(f"{archive}.new.tar").rename(archive)
    # Mounts in there are visible in the namespaces of the trial only, so the directory can be removed.
    scratch = arguments.out / "trial"
    scratch.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, INSIDE: "yes", "TMPDIR": str(scratch)}
    namespaces = ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
    status = subprocess.run([*namespaces, sys.executable, *sys.argv], env=environment).returncode
    shutil.rmtree(scratch)
    sys.exit(status)


if __name__ == "__main__":
    main()
