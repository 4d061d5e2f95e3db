"""Volumes and environment of a pod, from Secrets, ConfigMaps, ServiceAccount tokens and the pod itself."""

import base64
import re
import time
from pathlib import Path
from typing import Any

from api import ApiClient, ApiError, KubeObject
from network import API_SERVICE

# Time that a referenced object has to appear: controllers and the suite create some after the pod.
APPEAR_SECONDS = 60
# A run is shorter than a token lasts, so no token is renewed.
TOKEN_SECONDS = 86400
NODE_NAME = "node"


class PodError(Exception):
    """A pod that cannot be started; the message names the member of its specification."""


class PodSources:
    """What the containers of one pod may refer to. All methods block."""

    def __init__(self, api: ApiClient, pod: KubeObject, address: str, host_address: str):
        self.api, self.pod = api, pod
        self.namespace = pod["metadata"]["namespace"]
        self.address, self.host_address = address, host_address

    def write_volumes(self, folder: Path) -> dict[str, Path]:
        """Writes the volumes of the pod; the folder of each by name."""
        written = {}
        for volume in self.pod["spec"].get("volumes") or []:
            path = folder / volume["name"]
            path.mkdir(parents=True, exist_ok=True)
            if "emptyDir" in volume:
                path.chmod(0o777)
            elif "projected" in volume:
                for source in volume["projected"]["sources"]:
                    self._write_source(path, source)
            else:
                self._write_source(path, volume)
            written[volume["name"]] = path
        return written

    def _write_source(self, path: Path, source: KubeObject) -> None:
        if "serviceAccountToken" in source:
            write_files(path, {source["serviceAccountToken"]["path"]: self._token(source["serviceAccountToken"])})
        elif "downwardAPI" in source:
            items = source["downwardAPI"]["items"]
            write_files(path, {item["path"]: self._field(item["fieldRef"]["fieldPath"]).encode() for item in items})
        elif "secret" in source or "configMap" in source:
            kind = "secret" if "secret" in source else "configMap"
            reference = source[kind]
            name = reference.get("secretName") or reference["name"]
            data = self._data(kind, name, reference.get("optional", False))
            items = reference.get("items") or [{"key": key, "path": key} for key in data]
            write_files(path, {item["path"]: data[item["key"]] for item in items if item["key"] in data})
        else:
            raise PodError(f"spec.volumes: unsupported volume {sorted(source)}")

    def _data(self, kind: str, name: str, optional: bool) -> dict[str, bytes]:
        """The contents of a Secret or ConfigMap, as soon as it exists."""
        path = f"/api/v1/namespaces/{self.namespace}/{'secrets' if kind == 'secret' else 'configmaps'}/{name}"
        end = time.monotonic() + APPEAR_SECONDS
        while (found := self.api.find(path)) is None:
            if optional:
                return {}
            if time.monotonic() > end:
                raise PodError(f"spec.volumes: {kind} {name} does not exist")
            time.sleep(0.2)
        if kind == "secret":
            return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        binary = {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
        return binary | {key: value.encode() for key, value in (found.get("data") or {}).items()}

    def _token(self, source: KubeObject) -> bytes:
        metadata = self.pod["metadata"]
        account = self.pod["spec"].get("serviceAccountName", "default")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        audiences = [source["audience"]] if source.get("audience") else []
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
            "expirationSeconds": TOKEN_SECONDS, "boundObjectRef": bound, "audiences": audiences}}
        try:
            reply = self.api.create(f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token", request)
        except ApiError as error:
            raise PodError(f"token of ServiceAccount {account}: {error}") from error
        return reply["status"]["token"].encode()

    def environment(self, container: KubeObject) -> dict[str, str]:
        """The variables of a container, those of the API server included."""
        variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/",
                     "HOSTNAME": self.pod["metadata"]["name"], "KUBERNETES_SERVICE_HOST": API_SERVICE,
                     "KUBERNETES_SERVICE_PORT": "443"}
        for entry in container.get("env") or []:
            if "valueFrom" in entry:
                value = self._reference(entry["name"], entry["valueFrom"])
            else:
                value = expand(entry.get("value", ""), variables)
            variables[entry["name"]] = value
        return variables

    def _reference(self, name: str, source: KubeObject) -> str:
        if "fieldRef" in source:
            return self._field(source["fieldRef"]["fieldPath"])
        for kind, member in (("secret", "secretKeyRef"), ("configMap", "configMapKeyRef")):
            if member in source:
                reference = source[member]
                data = self._data(kind, reference["name"], reference.get("optional", False))
                return data.get(reference["key"], b"").decode()
        raise PodError(f"env {name}: unsupported source {sorted(source)}")

    def _field(self, path: str) -> str:
        """The value of a fieldPath."""
        known = {"status.podIP": self.address, "status.podIPs": self.address, "status.hostIP": self.host_address,
                 "spec.nodeName": NODE_NAME}
        if path in known:
            return known[path]
        keyed = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
        if keyed:
            return (self.pod["metadata"].get(keyed[1]) or {}).get(keyed[2], "")
        value: Any = self.pod
        for member in path.split("."):
            value = value.get(member) if isinstance(value, dict) else None
        if not isinstance(value, str):
            raise PodError(f"fieldPath {path} is unsupported")
        return value


def expand(text: str, variables: dict[str, str]) -> str:
    """Replaces `$(NAME)`; `$$` is a dollar sign, and an unknown name stays, as in Kubernetes."""
    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])
    return re.sub(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)", value, text)


def write_files(folder: Path, contents: dict[str, bytes]) -> None:
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
