#!/usr/bin/env python3
"""Writes the container image as an OCI image layout: no daemon, no root, the same bytes for the same input.

The image has two layers: the files of a base directory (libc, certificates) and the gateway. It has no shell.
"""

import argparse
import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
# The user of distroless images, so that policies for those hold here too.
USER = 65532


class Layer:
    """A reproducible tar archive: sorted by the caller, one time, no names of users."""

    def __init__(self, time: int):
        self.time = time
        self.buffer = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.buffer, mode="w", format=tarfile.PAX_FORMAT)
        self.seen: set[str] = set()

    def _add(self, info: tarfile.TarInfo, data: bytes = b"") -> None:
        info.mtime = self.time
        self.tar.addfile(info, io.BytesIO(data) if info.isreg() else None)
        self.seen.add(info.name)

    def directory(self, name: str, mode: int = 0o755, owner: int = 0) -> None:
        name = name.strip("/")
        parent = name.rpartition("/")[0]
        if parent and parent not in self.seen:
            self.directory(parent)
        if name in self.seen:
            return
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, mode, owner, owner
        self._add(info)

    def file(self, name: str, data: bytes, mode: int = 0o644) -> None:
        self.directory(name.rpartition("/")[0])
        info = tarfile.TarInfo(name.strip("/"))
        info.size, info.mode = len(data), mode
        self._add(info, data)

    def link(self, name: str, target: str) -> None:
        self.directory(name.rpartition("/")[0])
        info = tarfile.TarInfo(name.strip("/"))
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
        self._add(info)

    def tree(self, root: Path) -> None:
        for path in sorted(root.rglob("*")):
            name = "/" + path.relative_to(root).as_posix()
            if path.is_symlink():
                self.link(name, str(path.readlink()))
            elif path.is_dir():
                self.directory(name)
            else:
                self.file(name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)

    def finish(self) -> bytes:
        self.tar.close()
        return self.buffer.getvalue()


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Layout:
    """The directory of an OCI image layout."""

    def __init__(self, out: Path):
        self.out = out
        (out / "blobs/sha256").mkdir(parents=True, exist_ok=True)

    def blob(self, data: bytes, media_type: str) -> dict:
        found = digest(data)
        (self.out / "blobs/sha256" / found.removeprefix("sha256:")).write_bytes(data)
        return {"mediaType": media_type, "digest": found, "size": len(data)}

    def document(self, value: dict, media_type: str) -> dict:
        return self.blob(json.dumps(value, separators=(",", ":"), sort_keys=True).encode(), media_type)

    def finish(self, manifests: list[dict]) -> None:
        (self.out / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        (self.out / "index.json").write_text(json.dumps(index, indent=1))


def gateway_layer(binary: Path, settings: Path, time: int) -> bytes:
    layer = Layer(time)
    layer.file("/usr/bin/yumen", binary.read_bytes(), 0o755)
    layer.file("/etc/yumen/yumen.yaml", settings.read_bytes())
    layer.file("/etc/passwd", f"root:x:0:0::/:/nologin\nyumen:x:{USER}:{USER}::/var/lib/yumen:/nologin\n".encode())
    layer.file("/etc/group", f"root:x:0:\nyumen:x:{USER}:\n".encode())
    # Name resolution without this file asks name servers before /etc/hosts.
    layer.file("/etc/nsswitch.conf", b"hosts: files dns\n")
    layer.directory("/var/lib/yumen", 0o700, USER)
    layer.directory("/tmp", 0o1777)
    return layer.finish()


def image_config(arch: str, version: str, created: str, layers: list[bytes]) -> dict:
    return {
        "architecture": arch,
        "os": "linux",
        "created": created,
        "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        "history": [{"created": created, "created_by": name} for name in ("base", "yumen")],
        "config": {
            "User": f"{USER}:{USER}",
            "WorkingDir": "/var/lib/yumen",
            "Entrypoint": ["/usr/bin/yumen"],
            "Cmd": ["run"],
            "Env": ["PATH=/usr/bin", "YUMEN_CONFIG=/etc/yumen/yumen.yaml"],
            "ExposedPorts": {"9080/tcp": {}, "9443/tcp": {}, "9091/tcp": {}},
            "Volumes": {"/var/lib/yumen": {}},
            "StopSignal": "SIGTERM",
            # Beyond the OCI specification, which ignores it; times are in nanoseconds.
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/yumen", "health"],
                "Interval": 10_000_000_000,
                "Timeout": 5_000_000_000,
                "StartPeriod": 10_000_000_000,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "yumen",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
    }


def compressed(layer: bytes) -> bytes:
    """A quarter smaller than gzip. The threads of zstd would change the bytes from machine to machine."""
    return subprocess.run(["zstd", "--ultra", "-22", "--single-thread"], input=layer, capture_output=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="directory of the layout")
    parser.add_argument("--version", required=True)
    parser.add_argument("--time", type=int, required=True, help="time of all files, in seconds since 1970")
    parser.add_argument("--settings", type=Path, default=Path(__file__).with_name("yumen.yaml"))
    parser.add_argument(
        "--arch",
        nargs=3,
        action="append",
        required=True,
        metavar=("ARCH", "BINARY", "BASE"),
        help="architecture by its OCI name, the stripped binary, the directory with the base files",
    )
    arguments = parser.parse_args()
    import datetime

    created = datetime.datetime.fromtimestamp(arguments.time, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    layout, manifests = Layout(arguments.out), []
    for arch, binary, base in arguments.arch:
        base_layer = Layer(arguments.time)
        base_layer.tree(Path(base))
        layers = [base_layer.finish(), gateway_layer(Path(binary), arguments.settings, arguments.time)]
        packed = [layout.blob(compressed(layer), LAYER) for layer in layers]
        config = layout.document(image_config(arch, arguments.version, created, layers), CONFIG)
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": packed}
        described = layout.document(manifest, MANIFEST)
        described["platform"] = {"architecture": arch, "os": "linux"}
        manifests.append(described)
        print(f"{arch}: {sum(one['size'] for one in packed) / 1e6:.1f} MB compressed")
    if len(manifests) > 1:
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        manifests = [layout.document(index, INDEX)]
    # By the one, tools for layouts find the image; by the other, `docker load` names it.
    manifests[0]["annotations"] = {
        "org.opencontainers.image.ref.name": arguments.version,
        "io.containerd.image.name": f"docker.io/library/yumen:{arguments.version}",
    }
    layout.finish(manifests)


if __name__ == "__main__":
    main()
