#!/usr/bin/env python3
"""Copies the pages of the repository to where the site generator reads them, and writes its navigation.

A page keeps its path. The Chinese pages in docs/zh get the path of their original and `.zh` before their suffix.
"""

import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ZH = "docs/zh/"
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def target(path: str) -> str:
    """The path of a page in the site."""
    special = {"README.md": "index.md", "README.zh-CN.md": "index.zh.md", ZH + "README.md": "docs/index.zh.md"}
    if path in special:
        return special[path]
    if path.startswith(ZH):
        stem, suffix = posixpath.splitext(path.removeprefix(ZH))
        return f"docs/{stem}.zh{suffix}"
    return path


def linked(path: str) -> str:
    """The path of a linked page: the generator finds the language of a link itself."""
    return re.sub(r"\.zh(\.\w+)$", r"\1", target(path))


def convert(path: str, text: str) -> str:
    """Replaces links by those between the paths in the site."""
    here = posixpath.dirname(target(path))

    def replace(match: re.Match) -> str:
        link = match.group(2)
        if "://" in link or link.startswith("mailto:"):
            return match.group()
        found = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
        return match.group(1) + posixpath.relpath(linked(found), here or ".") + match.group(3)

    # Not in blocks of code.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.S | re.M)
    return "".join(part if part.startswith("```") else LINK.sub(replace, part) for part in parts)


def number(path: str) -> tuple[int, str]:
    name = posixpath.basename(path)
    return int(re.match(r"\d*", name).group() or 0), name


def navigation(pages: list[str]) -> str:
    """The navigation in the order of a reader."""
    pages = [page for page in pages if not page.endswith(".zh.md")]
    under = lambda folder: sorted((page for page in pages if posixpath.dirname(page) == folder), key=number)
    entries = [("Yumen", ["index.md"])]
    entries.append(("Guides", ["docs/index.md", *under("docs/guides")]))
    entries.append(("Reference", ["docs/guide.md", "docs/admin-api.md", *under("docs/reference"), "docs/compatibility.md",
                                  "docs/glossary.md", "CHANGELOG.md", "SECURITY.md"]))
    entries.append(("Contributing", ["CONTRIBUTING.md", "ARCHITECTURE.md", *under("docs/contributing")]))
    entries.append(("Decisions", under("docs/decisions")))
    entries.append(("Lab", [*under("docs/lab"), *under("docs/benchmarks")]))
    lines = ["nav:"]
    for title, listed in entries:
        lines.append(f"  - {title}:")
        lines += [f"      - {page}" for page in listed if page in pages]
    return "\n".join(lines) + "\n"


def index(pages: list[str]) -> str:
    """The English list of guides; the Chinese one is docs/zh/README.md."""
    title = lambda page: re.search(r"^# (.*)", (ROOT / page).read_text(), re.M).group(1)
    guides = sorted((page for page in pages if posixpath.dirname(page) == "docs/guides"), key=number)
    return "# Guides\n\n" + "".join(f"- [{title(page)}](guides/{posixpath.basename(page)})\n" for page in guides)


def main(out: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md", "*/reference/yumen.yaml"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    shutil.rmtree(out, ignore_errors=True)
    pages = []
    for path in listed:
        if not (ROOT / path).exists():
            continue
        to = out / "pages" / target(path)
        to.parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / path).read_text()
        to.write_text(convert(path, text) if path.endswith(".md") else text)
        pages.append(target(path))
    (out / "pages/docs/index.md").write_text(index([page for page in pages if not page.endswith(".zh.md")]))
    pages.append("docs/index.md")
    settings = Path(__file__).with_name("mkdocs.yml").read_text()
    (out / "mkdocs.yml").write_text(settings + navigation(pages))


if __name__ == "__main__":
    os.umask(0o022)
    main(Path(sys.argv[1]))
