// The journeys, in the order in which a newcomer makes them.

import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { ADMIN_KEY, VIEWER_KEY, eventually } from "./gateway.mjs";

const TIMEOUT = { timeout: 20_000 };

async function login(page, gateway, key = ADMIN_KEY) {
  await page.goto(`${gateway.url}/ui/`);
  await page.fill("#key", key);
  await page.press("#key", "Enter");
  await page.waitForSelector("nav", TIMEOUT);
}

const go = async (page, gateway, path, selector = "h1") => {
  await page.goto(`${gateway.url}/ui/#/${path}`);
  await page.waitForSelector(selector, TIMEOUT);
};

/** Replaces the text of the editor and waits until the node accepts it. */
async function writeText(page, value) {
  await page.fill(".text-editor textarea", `${JSON.stringify(value, null, 2)}\n`);
  await page.waitForSelector(".finding.good", TIMEOUT);
}

/** Reviews the effect, gives a reason and saves. Returns the text of the plan. */
async function save(page, reason) {
  await page.click("text=Review and save");
  await page.waitForSelector("dialog .plan", TIMEOUT);
  const plan = await page.textContent("dialog .plan");
  await page.fill("dialog input", reason);
  await page.click("dialog footer .primary");
  await page.waitForSelector(".message", TIMEOUT);
  return plan;
}

const textOf = (page, selector = "main") => page.textContent(selector);

/** Answers as the gateway of a cluster with an Ingress. */
async function fakeKubernetes(page) {
  const route = (id, uri) => ({ id, modified: 1, uri, hosts: ["shop.example.com"], labels: { origin: "Ingress/shop/web" } });
  const rows = {
    routes: [route("Ingress!shop!web!0", "/"), route("Ingress!shop!web!1", "/api/*")],
    upstreams: [{ id: "Service!shop!web!80", modified: 1, nodes: 2, labels: { origin: "Service/shop/web-pods" } }],
  };
  const answer = (body) => (request) => request.fulfill({ contentType: "application/json", body: JSON.stringify(body) });
  for (const kind of ["routes", "services", "upstreams", "stream_routes", "ssls", "listeners", "scopes", "plugin_configs", "global_rules"]) {
    await page.route(`**/yumen/v1/objects/${kind}*`, answer({ revision: 1, is_whole: true, rows: rows[kind] ?? [], deleted: [] }));
  }
  await page.route("**/yumen/v1/problems", answer([
    { level: "error", object: "Ingress/shop/web", path: "metadata.annotations", message: "auth-url: the host has no address", hint: "write a name that resolves" },
    { level: "warning", object: "routes/Ingress!shop!web!0", path: "uri", message: "no request has this path", hint: null },
  ]));
}

const withKey = (gateway) => gateway.send("/shop/1", { apikey: "a-key-of-ada" });

export const journeys = {
  "first view is small, quick and from this origin only": {
    async run({ page, gateway, seen }) {
      await login(page, gateway);
      await page.waitForSelector(".plot canvas", TIMEOUT);
      const files = seen.requests.filter((url) => url.includes("/ui/"));
      assert.ok(files.length <= 30, `${files.length} requests`);
      const bytes = await page.evaluate(() => performance.getEntriesByType("resource").filter((one) => one.name.includes("/ui/")).reduce((sum, one) => sum + one.encodedBodySize, 0));
      assert.ok(bytes > 20_000 && bytes <= 60_000, `${bytes} bytes`);
      await page.reload();
      await page.waitForSelector(".plot canvas", TIMEOUT);
      const cached = await page.evaluate(() => performance.getEntriesByType("resource").filter((one) => one.name.includes("/ui/assets/") && one.transferSize > 0).length);
      assert.equal(cached, 0, "immutable files are loaded again");
    },
  },

  "login refuses a wrong key, and logout ends the session": {
    async run({ page, gateway }) {
      await page.goto(`${gateway.url}/ui/`);
      await page.fill("#key", "wrong");
      await page.press("#key", "Enter");
      await page.waitForSelector("#key-error:not(:empty)", TIMEOUT);
      await login(page, gateway);
      assert.equal(await page.evaluate(() => document.cookie), "");
      await page.reload();
      await page.waitForSelector("nav", TIMEOUT);
      // The cookie alone opens nothing: every port of the host receives it.
      const statuses = await page.evaluate(() => Promise.all(["../yumen/v1/session", "../apisix/admin/routes"].map(async (path) => (await fetch(path)).status)));
      assert.deepEqual(statuses, [403, 403]);
      await page.click("text=Log out");
      await page.waitForSelector("#key", TIMEOUT);
      await page.reload();
      await page.waitForSelector("#key", TIMEOUT);
    },
  },

  "log in at an identity provider": {
    options: { leavesToProvider: true },
    async run({ page, gateway }) {
      gateway.provider.claims = { preferred_username: "ann", groups: ["operators"] };
      await page.goto(`${gateway.url}/ui/#/routes`);
      await page.click(".login .openid", TIMEOUT);
      await page.waitForSelector("nav", TIMEOUT);
      // The page before the login, and no code in the address.
      assert.equal(new URL(page.url()).hash, "#/routes");
      assert.match(await textOf(page, ".who"), /openid\/ann/);
      assert.equal(await page.evaluate(() => document.cookie), "");
      await page.reload();
      await page.waitForSelector("nav", TIMEOUT);
      await page.click("text=Log out");
      await page.waitForSelector(".login .openid", TIMEOUT);
      gateway.provider.claims = { preferred_username: "eve", groups: ["others"] };
      await page.click(".login .openid");
      await eventually("the missing role is shown", async () => /You have no role/.test(await textOf(page, ".login")));
      gateway.provider.isDown = true;
      await page.click(".login .openid");
      await eventually("the provider is down", async () => /does not respond/.test(await textOf(page, ".login")));
      gateway.provider.isDown = false;
      await page.goto(`${gateway.url}/ui/#/login/0123456789abcdef`);
      await page.reload();
      await eventually("a code of another browser opens nothing", async () => /This login has ended/.test(await textOf(page, ".login")));
      await login(page, gateway);
      assert.match(await textOf(page, ".who"), /ada/);
    },
  },

  "first route": {
    async run({ page, gateway }) {
      await login(page, gateway);
      await go(page, gateway, "routes", ".big");
      await page.click("text=New");
      await page.waitForSelector(".text-editor", TIMEOUT);
      await page.fill("#new-id", "shop");
      await page.fill(".text-editor textarea", '{"uri": "/shop/*", }');
      await page.waitForSelector(".finding.bad", TIMEOUT);
      await page.fill(".text-editor textarea", '{"uri": "/shop/*", "upstream": {"nodes": 7}}');
      await eventually("the node refuses the text", async () => /nodes/.test(await textOf(page, ".finding.bad")));
      await writeText(page, { name: "Shop", uri: "/shop/*", upstream: { type: "roundrobin", nodes: { [`127.0.0.1:${gateway.upstream}`]: 1 } }, labels: { team: "web" } });
      const plan = await save(page, "première route");
      assert.match(plan, /routes\/shop.*added/);
      assert.equal(await gateway.send("/shop/1"), 200);
      await page.waitForSelector("text=Settings in force", TIMEOUT);
      const { revisions } = await gateway.api("GET", "/yumen/v1/revisions?limit=1");
      assert.deepEqual([revisions[0].author, revisions[0].reason], ["ada", "première route"]);
    },
  },

  "protect it: the form and the text are one": {
    async run({ page, gateway }) {
      await login(page, gateway);
      await go(page, gateway, "consumers/new", ".text-editor");
      await writeText(page, { username: "ada" });
      await save(page, "a client");
      await page.waitForSelector("text=Credentials", TIMEOUT);
      await go(page, gateway, "credentials/new?consumer=ada", "#new-id");
      await page.fill("#new-id", "ada/credentials/first");
      await writeText(page, { plugins: { "key-auth": { key: "a-key-of-ada" } } });
      await page.click("text=Review and save");
      await page.click("dialog footer .primary");
      await page.waitForSelector("text=As stored", TIMEOUT);
      await go(page, gateway, "routes/shop/edit", ".text-editor");
      // The text first: a member that the form does not know stays.
      const text = JSON.parse(await page.inputValue(".text-editor textarea"));
      await writeText(page, { ...text, plugins: { "proxy-rewrite": { headers: { set: { "X-Shop": "1" } } } } });
      await page.selectOption(".plugins > div > .add select", "key-auth");
      await eventually("the text has the plugin", async () => "key-auth" in JSON.parse(await page.inputValue(".text-editor textarea")).plugins);
      const both = JSON.parse(await page.inputValue(".text-editor textarea"));
      assert.deepEqual(both.plugins["proxy-rewrite"], { headers: { set: { "X-Shop": "1" } } });
      assert.deepEqual(both.labels, { team: "web" });
      // The form again: a number and a removal.
      await page.selectOption(".sides > section:first-child > .object-form > .add select", "priority");
      await page.getByLabel("priority", { exact: true }).fill("7");
      await eventually("the text has the number", async () => JSON.parse(await page.inputValue(".text-editor textarea")).priority === 7);
      await page.getByLabel("Remove priority", { exact: true }).click();
      await eventually("the text has no number", async () => !("priority" in JSON.parse(await page.inputValue(".text-editor textarea"))));
      await page.waitForSelector(".finding.good", TIMEOUT);
      await save(page, "only known clients");
      assert.deepEqual([await gateway.send("/shop/1"), await withKey(gateway)], [401, 200]);
    },
  },

  "watch traffic": {
    async run({ page, gateway }) {
      await login(page, gateway);
      await page.waitForSelector(".plot canvas", TIMEOUT);
      await eventually("the overview shows the route", async () => {
        await Promise.all(Array.from({ length: 10 }, () => withKey(gateway)));
        return /routes\/shop/.test(await textOf(page));
      });
      await page.getByRole("button", { name: /Table Requests per second/ }).click();
      const cells = await page.locator("figure table tbody tr").count();
      assert.ok(cells > 0, "the table twin has rows");
      await page.getByRole("button", { name: /Chart Requests per second/ }).click();
      await go(page, gateway, "routes", ".big");
      await eventually("the table shows the rate", async () => {
        await withKey(gateway);
        return /\d/.test(await page.locator("tr", { hasText: "/shop/*" }).locator("td.number").first().textContent());
      });
      await page.locator("a", { hasText: /^shop$/ }).click();
      await eventually("recent requests are listed", async () => /\/shop\/1/.test(await textOf(page)));
      assert.match(await textOf(page), /key-auth/);
    },
  },

  "break it and see the problem": {
    async run({ page, gateway }) {
      await login(page, gateway);
      await go(page, gateway, "routes/shop/edit", ".text-editor");
      const text = JSON.parse(await page.inputValue(".text-editor textarea"));
      text.upstream.nodes = { [`127.0.0.1:${gateway.dead}`]: 1 };
      text.plugins["key-auth"] = { hide_credentails: true };
      await writeText(page, text);
      await save(page, "a new endpoint");
      assert.equal(await withKey(gateway), 502);
      await eventually("the warning about the misspelt member is shown", async () => /hide_credentails/.test(await textOf(page, ".messages")));
      await go(page, gateway, "problems", ".problems");
      assert.match(await textOf(page), /hide_credentails[\s\S]*hide_credentials/);
      await go(page, gateway, "", ".figures");
      await eventually("the overview shows errors", async () => {
        await Promise.all(Array.from({ length: 5 }, () => withKey(gateway)));
        return (await page.locator(".figure.bad").count()) > 0;
      });
    },
  },

  "roll back with a reason": {
    async run({ page, gateway }) {
      await login(page, gateway);
      const { revisions } = await gateway.api("GET", "/yumen/v1/revisions?object=routes/shop");
      await go(page, gateway, "history?object=routes/shop", "table");
      await page.locator("table a", { hasText: new RegExp(`^${revisions[1].revision}$`) }).click();
      await page.waitForSelector(".change", TIMEOUT);
      await page.click(".heading .primary");
      await page.waitForSelector("dialog .change", TIMEOUT);
      assert.match(await textOf(page, "dialog"), /hide_credentails/);
      assert.equal(await page.isDisabled("dialog footer button:last-child"), true, "a reason is required");
      await page.fill("dialog input", "the endpoint does not answer");
      await page.click("dialog footer button:last-child");
      // A large share of the recent requests changes, so the node asks again.
      await Promise.race([page.waitForSelector(".message", TIMEOUT), page.waitForSelector("dialog .danger", TIMEOUT).then(() => page.click("dialog .danger"))]);
      await eventually("the route serves again", async () => (await withKey(gateway)) === 200);
      await eventually("the history has the reason", async () => /the endpoint does not answer/.test(await textOf(page)));
    },
  },

  "explain a 404": {
    async run({ page, gateway }) {
      assert.equal(await gateway.send("/shpo/1"), 404);
      await login(page, gateway);
      await page.fill("#search", "http://localhost/shpo/1");
      await page.press("#search", "Enter");
      await eventually("no route matches", async () => /No route matches/.test(await textOf(page)));
      assert.match(await textOf(page), /its path is \/shop\/\*, not \/shpo\/1|shop/);
      await page.getByLabel("URL", { exact: true }).fill("http://localhost/shop/1");
      await page.getByLabel("Header fields", { exact: true }).fill("apikey: a-key-of-ada");
      await page.getByRole("button", { name: "Explain", exact: true }).click();
      await eventually("the upstream is shown", async () => new RegExp(`127.0.0.1:${gateway.upstream}`).test(await textOf(page)));
      // At the revision that was broken.
      const { revisions } = await gateway.api("GET", "/yumen/v1/revisions?object=routes/shop");
      await page.getByLabel("At revision", { exact: true }).fill(String(revisions[1].revision));
      await page.getByRole("button", { name: "Explain", exact: true }).click();
      await eventually("the broken endpoint is shown", async () => new RegExp(`127.0.0.1:${gateway.dead}`).test(await textOf(page)));
    },
  },

  "a concurrent change is not overwritten": {
    async run({ page, gateway }) {
      await login(page, gateway);
      await go(page, gateway, "routes/shop/edit", ".text-editor");
      const text = JSON.parse(await page.inputValue(".text-editor textarea"));
      await gateway.api("PATCH", "/apisix/admin/routes/shop", { desc: "from elsewhere" });
      await writeText(page, { ...text, desc: "from here" });
      await page.click("text=Review and save");
      await page.waitForSelector("dialog .plan", TIMEOUT);
      await page.click("dialog footer .primary");
      await eventually("the conflict is shown", async () => /Another client has changed/.test(await textOf(page, "dialog")));
      assert.equal((await gateway.api("GET", "/apisix/admin/routes/shop")).value.desc, "from elsewhere");
    },
  },

  "edit in YAML: the form and the text are one": {
    async run({ page, gateway }) {
      await login(page, gateway);
      await go(page, gateway, "routes/shop/edit", ".text-editor");
      const yaml = () => page.inputValue(".text-editor textarea");
      await page.selectOption(".text-form select", "yaml");
      await eventually("the text is YAML", async () => /^uri: \/shop\/\*$/m.test(await yaml()));
      await page.fill(".text-editor textarea", `# a comment\n${await yaml()}priority: 3\n`);
      await eventually("the form has the number", async () => (await page.getByLabel("priority", { exact: true }).inputValue()) === "3");
      await page.getByLabel("priority", { exact: true }).fill("7");
      await eventually("the text has the number", async () => /^priority: 7$/m.test(await yaml()));
      assert.doesNotMatch(await yaml(), /a comment/);
      const good = await yaml();
      await page.fill(".text-editor textarea", `${good}labels: [\n`);
      await page.waitForSelector(".finding.bad", TIMEOUT);
      assert.match(await textOf(page, ".finding"), /line/);
      assert.equal(await page.locator(".text-editor .wrong").count(), 1);
      assert.equal(await page.isDisabled("text=Review and save"), true);
      await page.fill(".text-editor textarea", `${good.replace(/^desc: .*\n/m, "")}desc: "in YAML"\n`);
      await page.waitForSelector(".finding.good", TIMEOUT);
      await save(page, "by YAML");
      const { value } = await gateway.api("GET", "/apisix/admin/routes/shop");
      assert.deepEqual([value.priority, value.desc], [7, "in YAML"]);
      // The form of the text is that of the last time, and JSON shows the same object.
      await go(page, gateway, "routes/shop/edit", ".text-editor");
      await eventually("the text is YAML again", async () => /^desc: in YAML$/m.test(await yaml()));
      await page.selectOption(".text-form select", "json");
      assert.equal(JSON.parse(await yaml()).desc, "in YAML");
      assert.equal(await page.isDisabled("text=Revert"), true);
    },
  },

  "objects of Kubernetes lead to their resources and back": {
    async run({ page, gateway }) {
      await fakeKubernetes(page);
      await login(page, gateway);
      await go(page, gateway, "cluster", ".tall .big");
      assert.match(await textOf(page, ".tall"), /Ingress\/shop\/web[\s\S]*Routes 2/);
      await page.fill(".tall input", "ingress");
      await eventually("the search narrows the table", async () => (await page.locator(".tall tbody a").count()) === 1);
      await page.locator(".tall tbody a").click();
      await eventually("the problem of the object is shown", async () => /auth-url[\s\S]*routes\/Ingress!shop!web!0/.test(await textOf(page)));
      await go(page, gateway, "problems", ".problems");
      await page.locator(".problems a", { hasText: "Ingress/shop/web" }).first().click();
      await eventually("the problem leads to the object", async () => /Becomes/.test(await textOf(page)));
    },
  },

  "a session that ends keeps the text that is not saved": {
    async run({ page, gateway }) {
      await login(page, gateway);
      await go(page, gateway, "routes/shop/edit", ".text-editor");
      const text = JSON.parse(await page.inputValue(".text-editor textarea"));
      await writeText(page, { ...text, desc: "typed before the end" });
      await page.context().clearCookies();
      await page.waitForSelector("#key", TIMEOUT);
      assert.equal(await page.isVisible(".text-editor"), false);
      await page.fill("#key", ADMIN_KEY);
      await page.press("#key", "Enter");
      await page.waitForSelector(".text-editor", TIMEOUT);
      assert.match(await page.inputValue(".text-editor textarea"), /typed before the end/);
      await save(page, "after the second login");
      assert.equal((await gateway.api("GET", "/apisix/admin/routes/shop")).value.desc, "typed before the end");
    },
  },

  "another client gets nothing of the page of the last one": {
    async run({ page, gateway }) {
      await login(page, gateway);
      await go(page, gateway, "routes/shop/edit", ".text-editor");
      const text = JSON.parse(await page.inputValue(".text-editor textarea"));
      await writeText(page, { ...text, desc: "typed by ada" });
      await page.context().clearCookies();
      await page.waitForSelector("#key", TIMEOUT);
      await page.fill("#key", VIEWER_KEY);
      await page.press("#key", "Enter");
      await page.waitForSelector("nav", TIMEOUT);
      const shown = await page.evaluate(() => [document.body.textContent, ...[...document.querySelectorAll("textarea")].map((one) => one.value)].join(" "));
      assert.ok(!shown.includes("typed by ada"));
    },
  },

  "addresses of no object reach no other object": {
    async run({ page, gateway, seen }) {
      await login(page, gateway);
      for (const path of ["secrets/..%2Froutes%2Fshop", "secrets/vault", "credentials/ada%2Fcredentials%2F..", "consumers/ada%2Fcredentials%2Ffirst", "routes/..", "constructor", "constructor/x/edit", "__proto__"]) {
        seen.requests.length = 0;
        await go(page, gateway, path, "main [role=alert], main .failure");
        assert.deepEqual(seen.requests.filter((url) => /\/apisix\/admin\/(routes|consumers|secrets|credentials|constructor)/.test(url)), [], path);
      }
    },
  },

  "a certificate keeps its key, and shows its expiry": {
    async run({ page, gateway }) {
      await gateway.api("PUT", "/apisix/admin/ssls/site?wait=applied", { snis: ["shop.example"], ...gateway.certificate("shop.example") });
      await login(page, gateway);
      await go(page, gateway, "ssls", ".big");
      await eventually("the expiry is shown", async () => /days/.test(await textOf(page)));
      await go(page, gateway, "ssls/site/edit", ".text-editor");
      const text = JSON.parse(await page.inputValue(".text-editor textarea"));
      assert.equal(text.key, undefined);
      await writeText(page, { ...text, labels: { team: "web" } });
      await page.click("text=Review and save");
      await page.click("dialog footer .primary");
      await page.waitForSelector(".message", TIMEOUT);
      const stored = await gateway.api("GET", "/apisix/admin/configs");
      assert.match(stored.ssls[0].key, /PRIVATE KEY/);
      assert.deepEqual(stored.ssls[0].labels, { team: "web" });
    },
  },

  "a viewer changes nothing and sees no secret": {
    async run({ page, gateway }) {
      await login(page, gateway, VIEWER_KEY);
      for (const path of ["routes", "routes/shop", "routes/shop/edit", "consumers/ada", "credentials/ada%2Fcredentials%2Ffirst", "credentials/ada%2Fcredentials%2Ffirst/edit", "history", "problems", "upstreams"]) {
        await go(page, gateway, path);
        await page.waitForTimeout(300);
        const [text, controls] = [await page.evaluate(() => document.documentElement.outerHTML + [...document.querySelectorAll("textarea, input")].map((one) => one.value).join(" ")), await page.locator("main .primary:not(.question *), main .danger").count()];
        assert.ok(!text.includes("a-key-of-ada"), `${path} shows a secret`);
        assert.equal(controls, 0, `${path} offers a change`);
      }
    },
  },

  "names of objects are never markup": {
    async run({ page, gateway }) {
      const evil = '<img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}"\'';
      await gateway.api("PUT", "/apisix/admin/routes/evil?wait=applied", { name: evil, desc: evil, uri: "/evil/<b>", labels: { "<i>": "<script>alert(3)</script>" }, plugins: { mocking: { response_example: evil } } }, { "X-Yumen-Reason": "<svg/onload=alert(4)>" });
      await login(page, gateway);
      for (const path of ["routes", "routes/evil", "routes/evil/edit", "history", `explain?url=${encodeURIComponent("http://localhost/evil/<b>")}`, "problems", `routes?q=${encodeURIComponent(evil)}`, `${encodeURIComponent(evil)}`, `routes/${encodeURIComponent(evil)}`]) {
        await page.goto(`${gateway.url}/ui/#/${path}`);
        await page.waitForTimeout(600);
        const injected = await page.evaluate(() => document.querySelectorAll("#app img, #app script, #app i:not([class])").length);
        assert.equal(injected, 0, path);
      }
      await gateway.api("DELETE", "/apisix/admin/routes/evil");
    },
  },

  "keyboard only": {
    async run({ page, gateway }) {
      await page.goto(`${gateway.url}/ui/`);
      await page.waitForSelector("#key:focus", TIMEOUT);
      const { keyboard } = page;
      const focused = (selector) => eventually(`${selector} has the focus`, () => page.evaluate((selector) => document.activeElement?.matches(selector), selector));
      const tabTo = async (selector) => {
        for (let count = 0; count < 80; count += 1) {
          if (await page.evaluate((selector) => document.activeElement?.matches(selector), selector)) return;
          await keyboard.press("Tab");
        }
        throw new Error(`Tab does not reach ${selector}`);
      };
      await keyboard.type(ADMIN_KEY);
      await keyboard.press("Enter");
      await page.waitForSelector("nav", TIMEOUT);
      await keyboard.press("g");
      await keyboard.press("r");
      await page.waitForSelector(".big", TIMEOUT);
      await focused("#page-title");
      await tabTo(".big tbody a");
      await keyboard.press("ArrowDown");
      await focused(".big tbody a");
      await keyboard.press("Enter");
      await page.waitForSelector("a.button.primary", TIMEOUT);
      await tabTo("a.button.primary");
      await keyboard.press("Enter");
      await page.waitForSelector(".text-editor", TIMEOUT);
      await tabTo(".text-editor textarea");
      await keyboard.press("Control+a");
      await keyboard.insertText(JSON.stringify({ uri: "/keys", plugins: { mocking: { response_example: "by keyboard" } } }));
      await page.waitForSelector(".finding.good", TIMEOUT);
      await keyboard.press("Control+Enter");
      await page.waitForSelector("dialog .plan", TIMEOUT);
      await tabTo("dialog footer .primary");
      await keyboard.press("Enter");
      await eventually("the route is served", async () => (await gateway.send("/keys")) === 200);
      await page.waitForSelector("text=As stored", TIMEOUT);
      await keyboard.press("?");
      await page.waitForSelector("dialog .keys", TIMEOUT);
      await keyboard.press("Escape");
      await eventually("the dialog is closed", async () => (await page.locator("dialog").count()) === 0);
    },
  },

  "10 000 routes under a stream of changes": {
    async run({ page, gateway }) {
      for (let from = 0; from < 10_000; from += 2_000) {
        const routes = Array.from({ length: 2_000 }, (_, at) => from + at).map((at) => ({ id: `r${String(at).padStart(5, "0")}`, name: `Route ${at}`, uri: `/api/team${at % 53}/item${at}/*`, hosts: [`h${at % 31}.example.com`], labels: { team: `t${at % 53}` }, plugins: { cors: {} }, upstream: { nodes: { [`127.0.0.1:${gateway.upstream}`]: 1 } } }));
        await gateway.api("POST", "/yumen/v1/apply?confirm=true", { put: { routes } });
      }
      await login(page, gateway);
      await go(page, gateway, "routes", ".big tbody a");
      await eventually("all routes are there", async () => Number(await page.getAttribute(".big table", "aria-rowcount")) > 10_000, 60);
      await page.waitForTimeout(1000);
      let isOver = false;
      let changes = 0;
      const stream = (async () => {
        while (!isOver) {
          await gateway.api("PATCH", `/apisix/admin/routes/r0000${changes % 10}`, { desc: `change ${changes}` });
          changes += 1;
          await new Promise((resolve) => setTimeout(resolve, 150));
        }
      })();
      // CPU time of the page's thread, since other programs share the machine of a test.
      const debug = await page.context().newCDPSession(page);
      await debug.send("Performance.enable", { timeDomain: "threadTicks" });
      const used = async () => {
        const { metrics } = await debug.send("Performance.getMetrics");
        return metrics.filter((one) => ["ScriptDuration", "LayoutDuration", "RecalcStyleDuration"].includes(one.name)).reduce((sum, one) => sum + one.value * 1000, 0);
      };
      const before = await used();
      const steps = 180;
      // Every step shows other rows, the most expensive way to scroll.
      const rows = await page.evaluate(async (steps) => {
        const box = document.querySelector(".big");
        for (let step = 0; step < steps; step += 1) {
          box.scrollTop += 1700;
          await new Promise(requestAnimationFrame);
        }
        return document.querySelectorAll(".big tbody tr").length;
      }, steps);
      const perStep = ((await used()) - before) / steps;
      isOver = true;
      await stream;
      console.log(`       scrolling: ${perStep.toFixed(1)} ms per screen, ${rows} rows in the document, ${changes} changes meanwhile`);
      assert.ok(rows < 60, `${rows} rows are in the document`);
      // Two frames at 60 Hz, on a busy machine of two cores.
      assert.ok(perStep < 33, `${perStep} ms per screen: scrolling stalls`);
      const begun = Date.now();
      await page.fill(".filter input", "team=t7 route 7");
      await eventually("the search narrows the table", async () => Number(await page.getAttribute(".big table", "aria-rowcount")) < 300);
      assert.ok(Date.now() - begun < 3000, "the search stalls");
      await page.fill(".filter input", "");
      await eventually("a change reaches the table", async () => {
        await gateway.api("PATCH", "/apisix/admin/routes/r00000", { name: "renamed meanwhile" });
        return /renamed meanwhile/.test(await textOf(page, ".big").catch(() => "")) || ((await page.evaluate(() => (document.querySelector(".big").scrollTop = 0))), false);
      });
      await gateway.api("POST", "/yumen/v1/apply?confirm=true", { delete: Array.from({ length: 10_000 }, (_, at) => `routes/r${String(at).padStart(5, "0")}`) });
    },
  },

  "accessibility of every page": {
    async run({ page, gateway, open, axePath, screenshots }) {
      await gateway.api("PUT", "/apisix/admin/upstreams/pool?wait=applied", { name: "pool", nodes: { [`127.0.0.1:${gateway.upstream}`]: 2, [`127.0.0.1:${gateway.dead}`]: 1 }, checks: { active: { http_path: "/", healthy: { interval: 1 }, unhealthy: { interval: 1, tcp_failures: 1 } } } });
      await gateway.api("PUT", "/apisix/admin/routes/pool?wait=applied", { name: "Pool", uri: "/pool/*", upstream_id: "pool", plugins: { cors: {}, "limit-count": { count: 100, time_window: 60 } } });
      const pages = ["LOGIN", "", "routes", "routes/shop", "routes/shop/edit", "routes/new", "upstreams", "upstreams/pool", "services", "consumers", "consumers/ada", "credentials", "ssls", "global_rules", "plugin_metadata", "secrets", "listeners", "history", "history/3", "history/diff?from=1", "problems", "cluster", "cluster?object=Ingress%2Fshop%2Fweb", `explain?url=${encodeURIComponent("http://localhost/pool/1")}`];
      const violations = [];
      for (const [language, scheme] of [["en", "light"], ["zh", "dark"], ...(screenshots ? [["en", "dark"], ["zh", "light"]] : [])]) {
        const { context, page: own, seen } = await open({ language, scheme });
        await own.goto(`${gateway.url}/ui/`);
        await own.waitForSelector("#key", TIMEOUT);
        for (const path of pages) {
          if (path !== "LOGIN") {
            if (await own.locator("#key").count()) {
              await own.fill("#key", ADMIN_KEY);
              await own.press("#key", "Enter");
              await own.waitForSelector("nav", TIMEOUT);
            }
            if (path.startsWith("cluster?")) await fakeKubernetes(own);
            await own.goto(`${gateway.url}/ui/#/${path}`);
            if (path.startsWith("cluster?")) await own.reload();
            if (path === "routes/shop/edit" && language === "zh") await own.selectOption(".text-form select", "yaml");
          }
          await own.waitForTimeout(path === "" ? 5000 : 900);
          if (screenshots) await own.screenshot({ path: join(screenshots, `${(path || "overview").replace(/[^a-z0-9]+/gi, "_").slice(0, 40)}-${language}-${scheme}.png`) });
          // Through the debugger: the content security policy of the page does not apply to it.
          await own.evaluate(readFileSync(axePath, "utf8"));
          const result = await own.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }));
          for (const one of result.violations) violations.push(`${path || "overview"} ${language} ${scheme}: ${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary?.split("\n")[1] ?? ""}`).join(" | ")}`);
        }
        if (seen.faults.length) violations.push(...seen.faults);
        await context.close();
      }
      void page;
      assert.deepEqual(violations, []);
    },
  },
};
