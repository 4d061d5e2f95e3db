"""Load balancers: an address for each Service of that type, and rules of nftables from `address:port` to its endpoints.

Endpoints are those of all EndpointSlices of the Service, whoever manages them. The kernel picks one at random per connection or
UDP flow. Connection tracking keeps the choice, so a change of the endpoints moves only new connections.
"""

import asyncio
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

import network
from api import ApiClient, ApiError, KubeObject
from network import NetworkError

# Changes that arrive within this time are applied together.
BATCH_SECONDS = 0.005
RETRY_SECONDS = 0.5
SERVICE_NAME = "kubernetes.io/service-name"
# The upper half of the pool is left to Services that ask for an address.
DYNAMIC = list(network.BALANCERS.hosts())[:127]
USABLE_ADDRESS = str(network.BALANCERS[200])
# RFC 5737: an address that nobody has.
UNUSABLE_ADDRESS = "198.51.100.77"

Endpoint = tuple[str, int]


@dataclass(frozen=True, order=True)
class Frontend:
    """An address and a port that clients dial."""

    address: str
    protocol: str
    port: int


class AddressPool:
    """The addresses of Services, by the uid of the Service."""

    def __init__(self) -> None:
        self.taken: dict[str, str] = {}

    def assign(self, uid: str, wanted: str | None, current: str | None) -> str | None:
        """The address of a Service; None if the one that it asks for is outside the pool or taken. `current` is the one of its
        status, which is kept after a restart of this program."""
        held = self.taken.get(uid)
        address = wanted or held or current
        if address == held and held:
            return held
        self.release(uid)
        if address is None:
            address = next(str(free) for free in DYNAMIC if str(free) not in self.taken.values())
        elif address in self.taken.values() or not _is_pooled(address):
            return None
        network.add_balancer(address)
        self.taken[uid] = address
        return address

    def release(self, uid: str) -> None:
        if address := self.taken.pop(uid, None):
            network.remove_balancer(address)


class ServiceBalancer:
    """Follows Services and EndpointSlices. The methods `on_*` are called on the event loop, `run` applies."""

    def __init__(self, api: ApiClient, say: Callable[[str], None]):
        self.api, self.say = api, say
        self.services: dict[str, KubeObject] = {}
        self.slices: dict[str, KubeObject] = {}
        self.pool = AddressPool()
        self.changed = asyncio.Event()
        self.applied: dict[Frontend, list[Endpoint]] = {}

    def on_service(self, kind: str, value: KubeObject | list[KubeObject]) -> None:
        self._store(self.services, kind, value)

    def on_slice(self, kind: str, value: KubeObject | list[KubeObject]) -> None:
        self._store(self.slices, kind, value)

    def _store(self, objects: dict[str, KubeObject], kind: str, value: KubeObject | list[KubeObject]) -> None:
        if isinstance(value, list):
            objects.clear()
            objects.update((one["metadata"]["uid"], one) for one in value)
        elif kind == "DELETED":
            objects.pop(value["metadata"]["uid"], None)
        else:
            objects[value["metadata"]["uid"]] = value
        self.changed.set()

    async def run(self) -> None:
        """Applies changes until it is cancelled."""
        while True:
            await self.changed.wait()
            await asyncio.sleep(BATCH_SECONDS)
            self.changed.clear()
            try:
                await self._apply()
            except (ApiError, NetworkError, OSError) as error:
                self.say(f"load balancers: {error}")
                await asyncio.sleep(RETRY_SECONDS)
                self.changed.set()

    async def _apply(self) -> None:
        addresses = await asyncio.to_thread(self._assign, dict(self.services))
        desired = self._frontends(addresses)
        if desired != self.applied:
            await asyncio.to_thread(network.apply_rules, rules(desired, len(self.applied)))
            self.applied = desired
        # The address last: a client that finds it can connect.
        for uid, address in addresses.items():
            await self._write_status(self.services.get(uid), address)

    def _assign(self, services: dict[str, KubeObject]) -> dict[str, str | None]:
        """The addresses of all load balancers, by uid."""
        wanted = {uid: service for uid, service in services.items() if service["spec"].get("type") == "LoadBalancer"}
        for uid in set(self.pool.taken) - set(wanted):
            self.pool.release(uid)
        # Those that have an address keep it, so they go first.
        by_age = sorted(wanted.items(), key=lambda item: (not _status_address(item[1]), _created(item[1])))
        return {uid: self.pool.assign(uid, service["spec"].get("loadBalancerIP"), _status_address(service))
                for uid, service in by_age}

    def _frontends(self, addresses: dict[str, str | None]) -> dict[Frontend, list[Endpoint]]:
        """The endpoints of all addresses and ports, those of cluster addresses included."""
        slices: dict[str, list[KubeObject]] = {}
        for one in self.slices.values():
            name = (one["metadata"].get("labels") or {}).get(SERVICE_NAME)
            if name and one["addressType"] == "IPv4":
                slices.setdefault(f"{one['metadata']['namespace']}/{name}", []).append(one)
        desired = {}
        for uid, service in self.services.items():
            metadata, spec = service["metadata"], service["spec"]
            own = slices.get(f"{metadata['namespace']}/{metadata['name']}", [])
            for address in (spec.get("clusterIP"), addresses.get(uid)):
                if not address or address in ("None", network.API_SERVICE) or ":" in address:
                    continue
                for port in spec.get("ports") or []:
                    if found := endpoints(own, port.get("name", ""), port.get("protocol", "TCP")):
                        desired[Frontend(address, port.get("protocol", "TCP").lower(), port["port"])] = found
        return desired

    async def _write_status(self, service: KubeObject | None, address: str | None) -> None:
        if service is None or _status_address(service) == address:
            return
        metadata = service["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/services/{metadata['name']}/status"
        ingress = [{"ip": address, "ipMode": "VIP"}] if address else None
        try:
            await asyncio.to_thread(self.api.patch, path, {"status": {"loadBalancer": {"ingress": ingress}}})
        except ApiError as error:
            if error.status != 404:
                raise


def endpoints(slices: list[KubeObject], port_name: str, protocol: str) -> list[Endpoint]:
    """The ready endpoints of a port; without any, those that still serve while they terminate."""
    ready: set[Endpoint] = set()
    serving: set[Endpoint] = set()
    for one in slices:
        for port in one.get("ports") or []:
            if (port.get("name") or "") != port_name or port.get("protocol", "TCP") != protocol or not port.get("port"):
                continue
            for endpoint in one.get("endpoints") or []:
                conditions = endpoint.get("conditions") or {}
                found = {(address, port["port"]) for address in endpoint["addresses"]}
                if conditions.get("ready", True):
                    ready |= found
                elif conditions.get("serving") and conditions.get("terminating"):
                    serving |= found
    return sorted(ready or serving)


def rules(desired: dict[Frontend, list[Endpoint]], previous: int) -> str:
    """A script of nft that replaces the chains of `previous` frontends, in one transaction. Connections that are established keep
    their translation."""
    script = ["flush map ip balancer services", *(f"delete chain ip balancer service{number}" for number in range(previous))]
    elements = []
    for number, (frontend, found) in enumerate(sorted(desired.items())):
        targets = ", ".join(f"{index} : {address} . {port}" for index, (address, port) in enumerate(found))
        script.append(f"add chain ip balancer service{number}")
        script.append(f"add rule ip balancer service{number} meta l4proto {frontend.protocol} dnat ip addr . port to "
                      f"numgen random mod {len(found)} map {{ {targets} }}")
        elements.append(f"{frontend.address} . {frontend.protocol} . {frontend.port} : goto service{number}")
    if elements:
        script.append(f"add element ip balancer services {{ {', '.join(elements)} }}")
    return "\n".join(script) + "\n"


def _is_pooled(address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in network.BALANCERS
    except ValueError:
        return False


def _status_address(service: KubeObject) -> str | None:
    ingress = (service.get("status", {}).get("loadBalancer") or {}).get("ingress") or []
    return ingress[0].get("ip") if ingress else None


def _created(service: KubeObject) -> tuple[str, str]:
    return service["metadata"]["creationTimestamp"], service["metadata"]["uid"]
