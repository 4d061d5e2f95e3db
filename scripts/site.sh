#!/usr/bin/env bash
# Builds the documentation site into target/site/html, for any web server: python3 -m http.server -d target/site/html
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
scripts/deps.sh site
python3 docs/site/pages.py target/site
# A page that refers to a missing page or section of the site fails the build.
NO_MKDOCS_2_WARNING=1 target/tools/site/bin/python -m mkdocs --quiet build --strict --clean --config-file target/site/mkdocs.yml
python3 docs/site/search_check.py target/site/html
echo "target/site/html/index.html"
