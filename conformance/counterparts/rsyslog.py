"""rsyslog: syslog over UDP, TCP and TLS, tcp-logger and udp-logger."""

import json
import socket
from pathlib import Path

from scene import Scene, accepts, expect, free_port, program, wait_for
from sinks import Sink, default_form, parse, prove, resources

INPUTS = ("udp", "tcp", "tls", "tcp-logger", "udp-logger")


def configuration(folder: Path, ports: dict, cert: Path, key: Path) -> str:
    """One input and one file per route."""
    lines = [f'global(workDirectory="{folder}" maxMessageSize="64k" defaultNetstreamDriverCAFile="{cert}"'
             f' defaultNetstreamDriverCertFile="{cert}" defaultNetstreamDriverKeyFile="{key}")',
             'module(load="imudp")', 'module(load="imtcp" maxSessions="500")',
             'template(name="entry" type="list" option.jsonf="on") {']
    for name, source in (("priority", "pri"), ("version", "protocol-version"), ("host", "hostname"), ("app", "app-name"),
                         ("process", "procid"), ("time", "timereported"), ("message", "msg"), ("raw", "rawmsg")):
        dates = ' dateFormat="rfc3339"' if source == "timereported" else ""
        lines.append(f'  property(outname="{name}" name="{source}"{dates} format="jsonf")')
    lines.append("}")
    for name, port in ports.items():
        lines.append(f'ruleset(name="{name}") {{ action(type="omfile" file="{folder}/{name}.log" template="entry") }}')
        if name.startswith("udp"):
            lines.append(f'input(type="imudp" address="127.0.0.1" port="{port}" rcvbufSize="4m" ruleset="{name}")')
        elif name == "tls":
            lines.append(f'input(type="imtcp" address="127.0.0.1" port="{port}" ruleset="{name}" streamDriver.name="gtls"'
                         ' streamDriver.mode="1" streamDriver.authMode="anon")')
        else:
            lines.append(f'input(type="imtcp" address="127.0.0.1" port="{port}" ruleset="{name}")')
    return "\n".join(lines) + "\n"


def messages(path: Path) -> list[dict]:
    return [parse(line) or {"broken": line} for line in path.read_text(errors="replace").split("\n") if line] if path.exists() else []


def entries(path: Path, is_syslog: bool) -> list[dict]:
    """Entries of a file: the message of a syslog line, or the JSON list of a batch."""
    found = []
    for message in messages(path):
        if is_syslog:
            entry = parse(message.get("message", "")) or {"broken": message}
            found.append(default_form(entry) if "request" in entry else entry)
            continue
        try:
            batch = json.loads(message.get("raw", ""))
        except ValueError:
            batch = [{"broken": message}]
        found += batch if isinstance(batch, list) else [batch]
    return found


def check_headers(scene: Scene, folder: Path):
    with scene.case("rsyslog reads facility, severity, version, host, name and time of RFC 5424"):
        for name in ("udp", "tcp", "tls"):
            for message in messages(folder / f"{name}.log"):
                if "whole-" not in message.get("message", ""):
                    continue
                got = {key: message[key] for key in ("priority", "version", "app")}
                expect(got == {"priority": "46", "version": "1", "app": "apisix"}, f"{name}: {got}")
                expect(message["host"].startswith("127.0.0.1"), f"{name}: host {message['host']}")
                expect(message["process"].isdigit(), f"{name}: process {message['process']}")
                expect(message["time"].startswith("20"), f"{name}: time {message['time']}")


def run(scene: Scene):
    daemon = program("rsyslogd")
    ports = {name: free_port(socket.SOCK_DGRAM if name.startswith("udp") else socket.SOCK_STREAM) for name in INPUTS}
    cert, key = scene.certificate()
    config = scene.folder / "rsyslog.conf"
    config.write_text(configuration(scene.folder, ports, cert, key))
    server = scene.server("rsyslog", [daemon, "-n", "-C", "-f", config, "-i", scene.folder / "rsyslog.pid"], port=ports["tcp"])
    wait_for(lambda: accepts(ports["tls"]), 10, "TLS input of rsyslog")

    def sink(name: str, plugin: str, settings: dict, **more) -> Sink:
        path, is_syslog = scene.folder / f"{name}.log", plugin == "syslog"
        return Sink(name, plugin, {"host": "127.0.0.1", "port": ports[name], "timeout": 1000, **settings},
                    lambda: entries(path, is_syslog), confirms=False, **more)

    sinks = [
        sink("udp", "syslog", {"sock_type": "udp"}, lossless=False),
        sink("tcp", "syslog", {}),
        sink("tls", "syslog", {"tls": True}, form={}, decodes=True),
        sink("tcp-logger", "tcp-logger", {"max_retry_count": 2}),
        # A batch is one datagram: five entries with their fields fit.
        sink("udp-logger", "udp-logger", {"batch_max_size": 5, "timeout": 3}, lossless=False),
    ]
    gateway = scene.gateway(resources(sinks, scene.upstream().port))
    prove(scene, gateway, sinks, server)
    check_headers(scene, scene.folder)
