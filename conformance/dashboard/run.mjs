// Journeys through the dashboard in Chromium: run.mjs --binary target/release/yumen [--only WORD] [--screenshots FOLDER]
//
// Every journey starts in a browser of its own at the login. A request to another origin, an error on the console and a
// violation of the content security policy fail the journey that saw it.

import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { start } from "./gateway.mjs";
import { journeys } from "./journeys.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const modules = process.env.DASHBOARD_MODULES ?? join(here, "../../target/tools/dashboard/node_modules");
const require = createRequire(join(modules, "x"));
const { chromium } = require("playwright-core");
const axePath = require.resolve("axe-core/axe.min.js");

const { values: options } = parseArgs({
  options: { binary: { type: "string" }, only: { type: "string" }, screenshots: { type: "string" }, chromium: { type: "string", default: "/usr/bin/chromium" } },
});
if (!options.binary) throw new Error("--binary is missing");
if (options.screenshots) mkdirSync(options.screenshots, { recursive: true });

const gateway = await start(options.binary);
const browser = await chromium.launch({ executablePath: options.chromium, args: ["--no-sandbox"] });

/** A page that collects faults and requests. */
async function open({ language = "en", scheme = "light", leavesToProvider = false } = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, locale: language === "zh" ? "zh-CN" : "en-GB", colorScheme: scheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  const seen = { faults: [], requests: [] };
  page.on("pageerror", (error) => seen.faults.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // Chromium reports refused requests, of which journeys check the texts.
    const isRefusal = /status of (400|401|403|404|409|412|429)/.test(message.text());
    if (message.type() === "error" && !isRefusal) seen.faults.push(`console: ${message.text()}`);
  });
  page.on("dialog", (dialog) => {
    seen.faults.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    seen.requests.push(request.url());
    const isOfProvider = leavesToProvider && request.isNavigationRequest() && request.url().startsWith(gateway.provider.url);
    if (!request.url().startsWith(gateway.url) && !isOfProvider) seen.faults.push(`request to ${request.url()}`);
  });
  return { context, page, seen };
}

let passed = 0;
let failed = 0;
try {
  for (const [name, journey] of Object.entries(journeys)) {
    if (options.only && !name.includes(options.only)) continue;
    const { context, page, seen } = await open(journey.options);
    const begun = Date.now();
    try {
      await journey.run({ page, gateway, seen, open, axePath, screenshots: options.screenshots });
      if (seen.faults.length) throw new Error(seen.faults.join("\n"));
      passed += 1;
      console.log(`ok     ${name} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name}\n${error.stack}`);
      if (options.screenshots) await page.screenshot({ path: join(options.screenshots, `failed-${passed + failed}.png`) }).catch(() => {});
    } finally {
      await context.close().catch(() => {});
    }
  }
} finally {
  await browser.close();
  gateway.stop();
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
