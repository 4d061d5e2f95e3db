"""A gateway whose keys are in a secret manager, and the proof against a manager that is away. No counterpart itself."""

import subprocess
import time

from identity import Load
from scene import Scene, Server, expect, fetch, wait_for


class Node:
    """A gateway with the commands that its operator has. Its route `/keys` asks for a key."""

    def __init__(self, scene: Scene, document: dict, env: dict | None = None):
        self.scene, self.gateway = scene, scene.gateway(document, env=env)

    def status(self, key: str) -> int:
        return self.gateway.get("/keys", {"apikey": key})[0]

    def command(self, *words: str) -> str:
        done = subprocess.run([self.scene.binary, *words, "--data-dir", self.gateway.folder / "data"], capture_output=True, text=True, timeout=30)
        return done.stdout + done.stderr

    def refresh(self):
        self.command("secrets", "refresh")

    def problems(self) -> str:
        return fetch(f"http://127.0.0.1:{self.gateway.status_port}/yumen/v1/problems").decode()

    def wait_open(self, key: str, seconds: float = 20):
        wait_for(lambda: self.status(key) == 200, seconds, lambda: f"the key {key} is valid; problems {self.problems()}")

    def wait_current(self, count: int, seconds: float = 20):
        """Waits until this many values are current."""
        wait_for(lambda: self.command("secrets", "list").count("current") == count, seconds, f"{count} current values")

    def wait_problem(self, text: str, seconds: float = 30):
        wait_for(lambda: text in self.problems(), seconds, f"a problem with {text!r}")

    def wait_no_problem(self, text: str, seconds: float = 30):
        wait_for(lambda: text not in self.problems(), seconds, f"the end of the problem with {text!r}")

    def expect_hidden(self, *texts: str, more: str = ""):
        """Fails if one of the texts is in the log, in the problems or in the output of a command."""
        outputs = self.command("secrets", "list") + self.command("problems") + self.problems() + self.gateway.log() + more
        expect("current" in outputs, f"no current value: {outputs}")
        expect(not [text for text in texts if text in outputs], f"a value is shown: {outputs}")


def check_away(node: Node, server: Server, key: str):
    """A manager that hangs, ends and is away concerns no request."""
    with node.scene.case("a server that hangs or ends under load concerns no request"):
        with Load(node.gateway, "/keys", {"apikey": key}, rate=200) as load:
            server.freeze()
            node.refresh()
            time.sleep(2 if node.scene.short else 8)
            server.thaw()
            server.stop()
            node.refresh()
            node.wait_problem("cannot be refreshed")
        load.expect_only(200)
        node.scene.note(f"p99 {load.percentile_ms(0.99):.0f} ms")
