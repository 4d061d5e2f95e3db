"""The network of the stand-in node: a namespace that routes between this machine and the namespaces of pods.

    this machine (10.246.0.1) --- node namespace (10.246.0.2) --- pod namespaces (10.244.0.0/16)

Each pod has a link of its own to the node, so all packets pass through the node, where the rules of load balancers are
(`balancer.py`). This machine gets one link and two routes; its own packet filter and connection tracking are not touched.
Needs root. With YUMEN_CLUSTER_SITE=N, 1 to 40, names and networks differ from those of other sites, so that several clusters run
beside each other.
"""

import ctypes
import ipaddress
import os
import socket
import subprocess
import threading
from pathlib import Path

SITE = int(os.environ.get("YUMEN_CLUSTER_SITE", "0"))
# Each site has the next lower networks.
_PODS_OCTET = 244 - 3 * SITE
PODS = ipaddress.ip_network(f"10.{_PODS_OCTET}.0.0/16")
# Addresses of Services of type LoadBalancer.
BALANCERS = ipaddress.ip_network(f"10.{_PODS_OCTET + 1}.0.0/24")
# Address of the API server within pods: the first of `cluster.SERVICE_NETWORK`, which its certificate names.
API_SERVICE = "10.96.0.1"
HOST = f"10.{_PODS_OCTET + 2}.0.1"
NODE = f"10.{_PODS_OCTET + 2}.0.2"
POD_ROUTER = str(PODS[1])
FIRST_POD = 16
PREFIX = f"ykube{SITE or ''}"
NODE_NAMESPACE = f"{PREFIX}-node"
HOST_LINK = f"{PREFIX}-host"
CLONE_NEWNET = 0x40000000

# Connections of this machine keep their source address. The node's replaces it where the endpoint may be the client itself, whose
# packets would not return through the node: for pods, and for an endpoint on this machine.
BASE_RULES = f"""table ip balancer {{
  map services {{ type ipv4_addr . inet_proto . inet_service : verdict; }}
  chain prerouting {{ type nat hook prerouting priority dstnat; ip daddr . meta l4proto . th dport vmap @services; }}
  chain postrouting {{
    type nat hook postrouting priority srcnat;
    ip saddr {PODS} ct status dnat masquerade;
    ip daddr {HOST} ct status dnat masquerade;
  }}
}}
"""


class NetworkError(Exception):
    """A command of iproute2 or nftables failed."""


def run(command: list[str], stdin: str | None = None) -> None:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if done.returncode:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")


def ip(*lines: str, namespace: str | None = None) -> None:
    """Runs commands of `ip`, in order, in a namespace."""
    run(["ip", *(["-n", namespace] if namespace else []), "-batch", "-"], "\n".join(lines) + "\n")


def apply_rules(rules: str) -> None:
    """Applies a script of nft in the node's namespace: all of it or nothing."""
    run(["ip", "netns", "exec", NODE_NAMESPACE, "nft", "-f", "-"], rules)


def set_up() -> None:
    """Makes the node's namespace and the routes to it."""
    tear_down()
    ip(f"netns add {NODE_NAMESPACE}", f"link add {HOST_LINK} type veth peer name uplink netns {NODE_NAMESPACE}",
       f"addr add {HOST}/30 dev {HOST_LINK}", f"link set {HOST_LINK} up")
    ip("link set lo up", f"addr add {API_SERVICE}/32 dev lo", f"addr add {NODE}/30 dev uplink", "link set uplink up",
       f"route add default via {HOST}", namespace=NODE_NAMESPACE)
    ip(f"route add {PODS} via {NODE}", f"route add {BALANCERS} via {NODE}")
    apply_rules(BASE_RULES)
    # A datagram that arrives before its Service has endpoints is tracked without a translation, and so are those that follow
    # it from the same port.
    settings = {"net/ipv4/ip_forward": 1, "net/netfilter/nf_conntrack_udp_timeout": 2,
                "net/netfilter/nf_conntrack_udp_timeout_stream": 10}
    script = "\n".join(f"echo {value} > /proc/sys/{name}" for name, value in settings.items())
    run(["ip", "netns", "exec", NODE_NAMESPACE, "sh", "-euc", script])


def tear_down() -> None:
    """Removes every namespace of these fixtures; the links of a namespace, and routes over them, end with it."""
    folder = Path("/run/netns")
    for namespace in sorted(folder.glob(f"{PREFIX}-*")) if folder.exists() else ():
        run(["ip", "netns", "delete", namespace.name])
    # The kernel removes the links of a deleted namespace later.
    subprocess.run(["ip", "link", "delete", HOST_LINK], capture_output=True)


class PodNetwork:
    """The namespace and the address of one pod."""

    def __init__(self, number: int):
        self.namespace = f"{PREFIX}-{number}"
        self.link = f"pod{number}"
        self.address = str(PODS[FIRST_POD + number])

    def set_up(self) -> None:
        ip(f"netns add {self.namespace}")
        ip(f"link add {self.link} type veth peer name eth0 netns {self.namespace}",
           f"addr add {POD_ROUTER}/32 dev {self.link}", f"link set {self.link} up",
           f"route add {self.address}/32 dev {self.link}", namespace=NODE_NAMESPACE)
        ip("link set lo up", f"addr add {self.address}/32 dev eth0", "link set eth0 up",
           f"route add {POD_ROUTER} dev eth0", f"route add default via {POD_ROUTER}", namespace=self.namespace)

    def set_kernel_parameter(self, name: str, value: str) -> None:
        """Sets a parameter of the namespace, such as net.ipv4.ip_unprivileged_port_start."""
        run = subprocess.run(["ip", "netns", "exec", self.namespace, "sh", "-c", 'echo "$2" >"/proc/sys/$1"', "sh",
                              name.replace(".", "/"), value], capture_output=True, text=True)
        if run.returncode:
            raise NetworkError(f"sysctl {name}: {run.stderr.strip()}")

    def tear_down(self) -> None:
        # The link first, because a namespace lives on until its last connection has timed out.
        subprocess.run(["ip", "-n", NODE_NAMESPACE, "link", "delete", self.link], capture_output=True)
        subprocess.run(["ip", "netns", "delete", self.namespace], capture_output=True)


def add_balancer(address: str) -> None:
    """Makes an address local to the node, so that ports without a rule refuse connections."""
    ip(f"addr add {address}/32 dev lo", namespace=NODE_NAMESPACE)


def remove_balancer(address: str) -> None:
    ip(f"addr delete {address}/32 dev lo", namespace=NODE_NAMESPACE)


def listen_within(namespace: str, address: str, port: int) -> socket.socket:
    """A listening socket of another namespace. A socket stays in the namespace of the thread that created it."""
    made: list[socket.socket | OSError] = []
    thread = threading.Thread(target=_listen_here, args=(namespace, address, port, made))
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def _listen_here(namespace: str, address: str, port: int, made: list[socket.socket | OSError]) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    try:
        with open(f"/run/netns/{namespace}") as place:
            if library.setns(place.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"namespace {namespace} cannot be entered")
        made.append(socket.create_server((address, port), backlog=1024))
    except OSError as error:
        made.append(error)


def is_listening(pid: int, namespace: str) -> bool:
    """Whether any TCP or UDP socket is bound in a namespace, which the process enters soon after its start."""
    try:
        if os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat(f"/run/netns/{namespace}").st_ino:
            return False
        tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6", "udp", "udp6")]
    except OSError:
        return False
    # States of listening TCP sockets and of unconnected UDP sockets.
    return any(line.split()[3] in ("0A", "07") for table in tables for line in table.splitlines()[1:])


def is_permitted() -> bool:
    """Whether this process may create namespaces."""
    return os.geteuid() == 0
