// Writes the libraries of the dashboard from their npm packages, or checks that the files in the repository are these.
// Usage: node vendor.mjs [--check]
//
// The modules import each other by relative paths: bare names need an import map, which the content security policy of the
// dashboard refuses as an inline script.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "../../crates/yumen-admin-ui/assets/vendor");
const modules = process.env.DASHBOARD_MODULES ?? join(here, "node_modules");

const RELATIVE = {
  "@preact/signals-core": "./signals-core.js",
  "preact/hooks": "./hooks.js",
  preact: "./preact.js",
};

const FILES = [
  { to: "preact.js", from: "preact/dist/preact.mjs", licence: "preact/LICENSE" },
  { to: "hooks.js", from: "preact/hooks/dist/hooks.mjs" },
  { to: "signals-core.js", from: "@preact/signals-core/dist/signals-core.mjs", licence: "@preact/signals-core/LICENSE" },
  { to: "signals.js", from: "@preact/signals/dist/signals.mjs", licence: "@preact/signals/LICENSE" },
  { to: "htm.js", from: "htm/dist/htm.mjs", licence: "htm/LICENSE" },
  // The minified build is a script with one variable.
  { to: "uplot.js", from: "uplot/dist/uPlot.iife.min.js", more: "\nexport default uPlot;\n", licence: "uplot/LICENSE" },
];

const sha256 = (text) => createHash("sha256").update(text).digest("hex");
const versionOf = (path) => {
  const name = path.startsWith("@") ? path.split("/").slice(0, 2).join("/") : path.split("/")[0];
  return { name, version: JSON.parse(readFileSync(join(modules, name, "package.json"), "utf8")).version };
};

function vendored({ from, more = "" }) {
  let text = readFileSync(join(modules, from), "utf8").replace(/\n?\/\/# sourceMappingURL=.*\s*$/, "\n");
  for (const [name, path] of Object.entries(RELATIVE)) {
    text = text.replaceAll(`from"${name}"`, `from"${path}"`);
  }
  return text + more;
}

const written = new Map();
const sums = {};
let licences = "Licences of the libraries in this folder.\n";
for (const file of FILES) {
  const text = vendored(file);
  const { name, version } = versionOf(file.from);
  written.set(file.to, text);
  sums[file.to] = { package: name, version, file: file.from, sha256: sha256(text) };
  if (file.licence) {
    licences += `\n${"=".repeat(80)}\n${name} ${version}\n\n${readFileSync(join(modules, file.licence), "utf8")}`;
  }
}
written.set("LICENSES.txt", licences);
written.set("sums.json", `${JSON.stringify(sums, null, 2)}\n`);

let isStale = false;
for (const [name, text] of written) {
  const path = join(target, name);
  if (!process.argv.includes("--check")) {
    writeFileSync(path, text);
  } else if (readFileSync(path, "utf8") !== text) {
    console.error(`${path} differs from its npm package: run node conformance/dashboard/vendor.mjs`);
    isStale = true;
  }
}
process.exit(isStale ? 1 : 0);
