"""oidc-provider: logins in Chromium with every client authentication, rotated keys, load balancers, clocks, a provider that is away."""

import subprocess

from scene import PROGRAMS, ROOT, Missing, Scene, expect, program

JOURNEYS = ROOT / "conformance/counterparts/oidc/journeys.mjs"


def run(scene: Scene):
    modules, browser = PROGRAMS / "oidc-provider/node_modules", ROOT / "target/tools/dashboard/node_modules"
    for folder in (modules / "oidc-provider", browser / "playwright-core"):
        if not folder.exists():
            raise Missing(f"{folder.name} is not installed: run scripts/deps.sh counterparts dashboard")
    args = [program("node"), JOURNEYS, "--binary", scene.binary, "--modules", modules, "--browser", browser, "--logs", scene.folder,
            "--chromium", program("chromium")]
    if scene.short:
        args.append("--short")
    with open(scene.folder / "journeys.log", "wb") as log, \
            subprocess.Popen(args, stdout=subprocess.PIPE, stderr=log, text=True) as journeys:
        for line in journeys.stdout:
            verdict, name, *reason = line.rstrip().split("\t")
            if verdict == "note":
                scene.note(name)
                continue
            with scene.case(name):
                expect(verdict == "ok", " ".join(reason))
    expect(journeys.returncode is not None, "the journeys did not end")
