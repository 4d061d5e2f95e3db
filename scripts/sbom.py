#!/usr/bin/env python3
"""Writes the software bill of materials of a release: CycloneDX 1.5 as JSON.

It lists the crates in the binary for one target, the libraries of the dashboard, and the packages in the image.
Crates that only run at build time, such as macros, are not in the binary and not in the list. The same input gives the
same bytes.
"""

import argparse
import datetime
import json
import subprocess
import sys
import tomllib
import urllib.parse
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENDOR = ROOT / "crates/yumen-admin-ui/assets/vendor"
NPM_LOCK = ROOT / "conformance/dashboard/package-lock.json"


def licences(text: str) -> list[dict]:
    # The slash is the spelling of Cargo before SPDX expressions.
    return [{"expression": text.replace("/", " OR ")}] if text else []


def crates(target: str) -> tuple[dict[str, dict], dict[str, set[str]]]:
    """The components by their references, and what each depends on."""
    command = ["cargo", "tree", "--locked", "--package", "yumen", "--target", target, "--edges", "normal,no-proc-macro",
               "--prefix", "depth", "--format", "|{p}|{l}"]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sums = {(one["name"], one["version"]): one.get("checksum") for one in locked}
    components, edges, path = {}, {}, []
    for line in filter(None, lines):
        depth, package, licence = line.split("|")
        name, version = package.split()[:2]
        version = version.removeprefix("v")
        reference = f"pkg:cargo/{name}@{version}"
        # A repeated crate has a mark instead of its dependencies.
        component = {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference}
        if found := licences(licence.removesuffix(" (*)").strip()):
            component["licenses"] = found
        if checksum := sums[name, version]:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.setdefault(reference, component)
        edges.setdefault(reference, set())
        del path[int(depth):]
        if path:
            edges[path[-1]].add(reference)
        path.append(reference)
    return components, edges


def dashboard() -> dict[str, dict]:
    """The npm packages whose files are in the binary."""
    components = {}
    packages = json.loads(NPM_LOCK.read_text())["packages"]
    for file in json.loads((VENDOR / "sums.json").read_text()).values():
        name, version = file["package"], file["version"]
        reference = f"pkg:npm/{urllib.parse.quote(name)}@{version}"
        components[reference] = {"type": "library", "bom-ref": reference, "name": name, "version": version,
                                 "purl": reference, "licenses": licences(packages[f"node_modules/{name}"]["license"])}
    return components


def image(listed: Path) -> dict[str, dict]:
    """The packages of the image, from the list of deploy/image/base.sh."""
    components = {}
    for line in listed.read_text().splitlines():
        distribution, release, name, version, arch = line.split()
        reference = f"pkg:deb/{distribution}/{name}@{urllib.parse.quote(version)}?arch={arch}&distro={release}"
        components[reference] = {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference,
                                 "properties": [{"name": "yumen:part", "value": "image"}]}
    return components


def document(arguments: argparse.Namespace) -> dict:
    components, edges = crates(arguments.target)
    root = next(reference for reference in components if reference.startswith("pkg:cargo/yumen@"))
    own = components.pop(root) | {"type": "application", "version": arguments.version}
    others = dashboard()
    if arguments.image:
        others |= image(arguments.image)
    edges[root] |= set(others)
    components |= others
    time = datetime.datetime.fromtimestamp(arguments.time, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "component": own,
            "properties": [{"name": "yumen:target", "value": arguments.target}],
        },
        "components": [components[reference] for reference in sorted(components)],
        "dependencies": [{"ref": one, "dependsOn": sorted(edges.get(one, ()))} for one in sorted({root, *components})],
    }
    digest = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(found, sort_keys=True))
    return found | {"serialNumber": f"urn:uuid:{digest}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True, help="triple of the binary")
    parser.add_argument("--version", required=True)
    parser.add_argument("--time", type=int, required=True, help="seconds since 1970")
    parser.add_argument("--image", type=Path, help="packages of the image, as deploy/image/base.sh lists them")
    arguments = parser.parse_args()
    json.dump(document(arguments), sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
