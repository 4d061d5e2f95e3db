#!/usr/bin/env python3
"""Fails unless the search of the site finds words of the Chinese pages, which have no spaces between them."""

import json
import re
import sys
from pathlib import Path

# Each is a word of docs/site/words.txt and of several pages.
WORDS = ["请求体", "限流", "健康检查", "熔断"]


def main(html: Path) -> None:
    index = json.loads((html / "search/search_index.json").read_text())
    separator = re.compile(index["config"]["separator"])
    sections = [entry for entry in index["docs"] if entry["location"].startswith("zh/")]
    texts = [re.sub(r"<[^>]*>", " ", f"{entry['title']} {entry['text']}") for entry in sections]
    words = {word for text in texts for word in separator.split(text)}
    missing = [word for word in WORDS if word not in words]
    if missing:
        sys.exit(f"the search finds none of {missing} in {len(sections)} Chinese sections: see plugins.search in mkdocs.yml")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
