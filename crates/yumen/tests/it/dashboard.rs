//! The dashboard from outside: its files, its sessions and their protection, and the endpoints that its pages use.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::certs::{Authority, ecdsa};
use crate::harness::{Client, Gateway, Options, Reply, Scratch, Upstream, eventually};

const ADMIN: &str = "0123456789abcdef-admin";
const VIEWER: &str = "0123456789abcdef-viewer";
const KEYS: &str = "  keys: [{name: ada, key: 0123456789abcdef-admin}, {name: vic, key: 0123456789abcdef-viewer, role: viewer}]";

fn gateway(more: &str) -> Gateway {
    let node = format!("admin:\n{KEYS}\n{more}");
    Gateway::launch(Scratch::new(), &Options { node: &node, ..Options::default() }, &["--data-dir", "data"])
}

fn ask(gateway: &Gateway, line: &str, fields: &str, body: &str) -> Reply {
    let host = if fields.contains("Host:") { String::new() } else { format!("Host: {}\r\n", gateway.admin) };
    let length = body.len();
    let head =
        format!("{line} HTTP/1.1\r\n{host}{fields}Connection: close\r\nContent-Length: {length}\r\n\r\n");
    Client::connect(gateway.admin).send(head).send(body).reply()
}

/// A browser with a session.
struct BrowserSession<'g> {
    gateway: &'g Gateway,
    cookie: String,
    token: String,
}

impl<'g> BrowserSession<'g> {
    fn login(gateway: &'g Gateway, key: &str) -> BrowserSession<'g> {
        let reply = ask(gateway, "POST /yumen/v1/session", &format!("X-API-KEY: {key}\r\n"), "");
        assert_eq!(reply.status, 200, "{}", reply.text());
        let cookie = reply.field("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let token = reply.json()["csrf_token"].as_str().unwrap().to_owned();
        BrowserSession { gateway, cookie, token }
    }

    /// A request without the token.
    fn ask(&self, line: &str, fields: &str, body: &str) -> Reply {
        ask(self.gateway, line, &format!("Cookie: {}\r\n{fields}", self.cookie), body)
    }

    /// A request as the dashboard sends it.
    fn ask_as_page(&self, line: &str, body: &str) -> Reply {
        let origin = format!("http://{}", self.gateway.admin);
        let fields =
            format!("X-Yumen-Csrf: {}\r\nOrigin: {origin}\r\nSec-Fetch-Site: same-origin\r\n", self.token);
        self.ask(line, &fields, body)
    }
}

fn route(uri: &str) -> String {
    json!({ "uri": uri, "plugins": { "mocking": { "response_example": "ok" } } }).to_string()
}

#[test]
fn login_exchanges_a_key_for_a_cookie_that_no_script_reads() {
    let gateway = gateway("");
    for fields in ["", "X-API-KEY: wrong\r\n"] {
        let reply = ask(&gateway, "POST /yumen/v1/session", fields, "");
        assert_eq!((reply.status, reply.field("set-cookie")), (401, None), "{fields}");
    }
    // A key in the query would stay in logs and in the history of the browser.
    assert_eq!(ask(&gateway, &format!("POST /yumen/v1/session?api_key={ADMIN}"), "", "").status, 400);
    let reply = ask(&gateway, "POST /yumen/v1/session", &format!("X-API-KEY: {ADMIN}\r\n"), "");
    let cookie = reply.field("set-cookie").unwrap();
    assert!(cookie.starts_with("yumen_session="), "{cookie}");
    for attribute in ["; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=43200"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains("Domain") && !reply.text().contains(ADMIN));
    assert_eq!(
        (reply.field("cache-control"), reply.field("access-control-allow-origin")),
        (Some("no-store"), None)
    );
    let browser = BrowserSession::login(&gateway, ADMIN);
    let holder = browser.ask_as_page("GET /yumen/v1/session", "").json();
    assert_eq!(
        (&holder["name"], &holder["login"], holder.get("csrf_token")),
        (&json!("ada"), &json!("session"), None)
    );
    assert_eq!(browser.ask_as_page("GET /apisix/admin/routes", "").status, 200);
    let reply = browser.ask_as_page("DELETE /yumen/v1/session", "");
    assert!(reply.status == 204 && reply.field("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(browser.ask_as_page("GET /apisix/admin/routes", "").status, 401);
}

#[test]
fn session_serves_no_page_of_another_site() {
    let gateway = gateway("");
    let browser = BrowserSession::login(&gateway, ADMIN);
    let token = format!("X-Yumen-Csrf: {}\r\n", browser.token);
    let (put, get) = ("PUT /apisix/admin/routes/x", "GET /apisix/admin/routes");
    for (line, fields, status) in [
        (put, "", 403),
        (put, "X-Yumen-Csrf: 0000\r\n", 403),
        (put, &*format!("{token}Origin: http://evil.example\r\n"), 403),
        (put, &*format!("{token}Origin: null\r\n"), 403),
        (put, &*format!("{token}Sec-Fetch-Site: cross-site\r\n"), 403),
        // Another port of the same host is the same site, and gets the cookie too.
        (put, &*format!("{token}Sec-Fetch-Site: same-site\r\n"), 403),
        (put, &*format!("{token}Sec-Fetch-Site: none\r\n"), 403),
        (put, &*format!("{token}Host: evil.example\r\n"), 403),
        // An upstream on another port of the host receives the cookie, and can send it from anywhere.
        (get, "", 403),
        (get, "X-Yumen-Csrf: 0000\r\n", 403),
        ("GET /yumen/v1/session", "", 403),
        (get, &*format!("{token}Sec-Fetch-Site: cross-site\r\n"), 403),
        (get, &*format!("{token}Origin: http://evil.example\r\n"), 403),
        (get, &*format!("{token}Host: evil.example:9180\r\n"), 403),
        (get, &*format!("{token}Sec-Fetch-Site: none\r\n"), 200),
        (get, &*format!("{token}Host: localhost\r\n"), 200),
        (put, &*token, 201),
    ] {
        let reply = browser.ask(line, fields, &route("/x"));
        assert_eq!(reply.status, status, "{line} {fields}: {}", reply.text());
    }
    // Login and logout too: a foreign page must not log its visitor in or out.
    for fields in
        ["Origin: http://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n", "Host: evil.example\r\n"]
    {
        let login = ask(&gateway, "POST /yumen/v1/session", &format!("X-API-KEY: {ADMIN}\r\n{fields}"), "");
        assert_eq!((login.status, login.field("set-cookie")), (403, None), "{fields}");
        assert_eq!(
            browser.ask("DELETE /yumen/v1/session", &format!("{token}{fields}"), "").status,
            403,
            "{fields}"
        );
    }
    assert_eq!(browser.ask("DELETE /yumen/v1/session", "", "").status, 403);
    assert_eq!(browser.ask_as_page("PUT /apisix/admin/routes/x", &route("/y")).status, 200);
}

#[test]
fn token_chooses_the_session_among_all_cookies() {
    let gateway = gateway("");
    let (admin, viewer) = (BrowserSession::login(&gateway, ADMIN), BrowserSession::login(&gateway, VIEWER));
    let dead = "yumen_session=0; __Host-yumen_session=1";
    let name_of = |cookies: &str, token: &str| {
        let fields = format!("Cookie: {cookies}\r\nX-Yumen-Csrf: {token}\r\n");
        let reply = ask(&gateway, "GET /yumen/v1/session", &fields, "");
        (reply.status, reply.json()["name"].as_str().unwrap_or_default().to_owned())
    };
    let both = format!("{dead}; {}; {}", viewer.cookie, admin.cookie);
    assert_eq!(name_of(&both, &admin.token), (200, "ada".into()));
    assert_eq!(name_of(&both, &viewer.token), (200, "vic".into()));
    assert_eq!(name_of(&both, "0").0, 403);
    assert_eq!(name_of(dead, &admin.token).0, 401);
    assert_eq!(name_of(&format!("{}; {}", "yumen_session=0; ".repeat(8), admin.cookie), &admin.token).0, 401);
    // A session goes before a cookie with a key, which counts once no session is left.
    let with_key = format!("x_api_key={VIEWER}; {}", admin.cookie);
    assert_eq!(name_of(&with_key, &admin.token), (200, "ada".into()));
    assert_eq!(name_of(&format!("x_api_key={VIEWER}; {dead}"), ""), (200, "vic".into()));
    let fields = format!("Cookie: {both}\r\nX-Yumen-Csrf: {}\r\n", admin.token);
    assert_eq!(ask(&gateway, "DELETE /yumen/v1/session", &fields, "").status, 204);
    assert_eq!((name_of(&both, &admin.token).0, name_of(&both, &viewer.token).0), (401, 401));
}

#[test]
fn viewer_sees_no_secret_and_writes_nothing() {
    let gateway = gateway("");
    let admin = BrowserSession::login(&gateway, ADMIN);
    let consumer = json!({ "username": "jack", "plugins": { "key-auth": { "key": "geheim" } } });
    assert_eq!(
        admin.ask_as_page("PUT /apisix/admin/consumers?wait=applied", &consumer.to_string()).status,
        201
    );
    let viewer = BrowserSession::login(&gateway, VIEWER);
    for path in [
        "/apisix/admin/consumers",
        "/apisix/admin/consumers/jack",
        "/yumen/v1/objects/consumers",
        "/yumen/v1/revisions/2",
        "/yumen/v1/diff?from=1",
    ] {
        let reply = viewer.ask_as_page(&format!("GET {path}"), "");
        assert!(reply.status == 200 && !reply.text().contains("geheim"), "{path}: {}", reply.text());
    }
    assert!(!admin.ask_as_page("GET /yumen/v1/objects/consumers", "").text().contains("geheim"));
    assert_eq!(viewer.ask_as_page("PUT /apisix/admin/routes/x", &route("/x")).status, 401);
    assert_eq!(viewer.ask_as_page("POST /yumen/v1/revisions/1/rollback", "").status, 403);
    let question = json!({ "url": "/hello" }).to_string();
    assert_eq!(viewer.ask_as_page("POST /yumen/v1/explain", &question).status, 200);
    assert_eq!(viewer.ask("POST /yumen/v1/explain", "", &question).status, 403);
    assert_eq!(viewer.ask_as_page("DELETE /yumen/v1/session", "").status, 204);
}

#[test]
fn revoked_key_ends_its_sessions() {
    let (gateway, key) = Gateway::embedded();
    let admin = BrowserSession::login(&gateway, &key);
    let created = admin.ask_as_page("PUT /yumen/v1/keys/bob?role=admin", "").json();
    let bob = BrowserSession::login(&gateway, created["key"].as_str().unwrap());
    assert_eq!(bob.ask_as_page("GET /apisix/admin/routes", "").status, 200);
    assert_eq!(admin.ask_as_page("DELETE /yumen/v1/keys/bob", "").status, 200);
    assert_eq!(bob.ask_as_page("GET /apisix/admin/routes", "").status, 401);
    assert_eq!(admin.ask_as_page("GET /apisix/admin/routes", "").status, 200);
}

#[test]
fn pages_allow_no_foreign_content_and_are_cached_by_release() {
    let gateway = gateway("");
    let redirect = ask(&gateway, "GET /ui", "", "");
    assert_eq!((redirect.status, redirect.field("location")), (308, Some("ui/")));
    let index = ask(&gateway, "GET /ui/", "", "");
    let policy = index.field("content-security-policy").unwrap();
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "connect-src 'self'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"));
    assert_eq!(
        (index.field("x-frame-options"), index.field("cache-control")),
        (Some("DENY"), Some("no-cache"))
    );
    assert_eq!(
        (index.field("access-control-allow-origin"), index.field("x-content-type-options")),
        (None, Some("nosniff"))
    );
    let page = index.text();
    let scripts: Vec<&str> = page.split("<script").skip(1).collect();
    assert!(
        !scripts.is_empty()
            && scripts.iter().all(|script| script.contains("src=\"") && script.contains("></script>"))
    );
    assert!(!page.contains("style=") && !page.contains("http://") && !page.contains("https://"), "{page}");
    let path = page.split("src=\"").nth(1).unwrap().split('"').next().unwrap();
    let script = ask(&gateway, &format!("GET /ui/{path}"), "", "");
    assert_eq!(script.field("cache-control"), Some("public, max-age=31536000, immutable"));
    assert!(script.text().contains("import") && script.field("content-encoding").is_none());
    let compressed = ask(&gateway, &format!("GET /ui/{path}"), "Accept-Encoding: gzip, br\r\n", "");
    assert_eq!(compressed.field("content-encoding"), Some("gzip"));
    let etag = format!("If-None-Match: {}\r\n", script.field("etag").unwrap());
    assert_eq!(ask(&gateway, &format!("GET /ui/{path}"), &etag, "").status, 304);
    for absent in ["/ui/assets/0/app/main.js", "/ui/x", "/ui/assets/..%2f..%2fetc/passwd"] {
        assert_eq!(ask(&gateway, &format!("GET {absent}"), "", "").status, 404, "{absent}");
    }
    assert_eq!(ask(&gateway, "GET /ui/", "Host: evil.example\r\n", "").status, 403);
}

#[test]
fn settings_turn_the_dashboard_off_and_name_its_hosts() {
    let off = gateway("  dashboard: {enabled: false}\n");
    assert_eq!(ask(&off, "GET /ui/", "", "").status, 404);
    assert_eq!(ask(&off, "POST /yumen/v1/session", &format!("X-API-KEY: {ADMIN}\r\n"), "").status, 404);
    let named = gateway("  dashboard: {hosts: [gateway.example]}\n");
    assert_eq!(ask(&named, "GET /ui/", "Host: gateway.example\r\n", "").status, 200);
    assert_eq!(ask(&named, "GET /ui/", "Host: other.example\r\n", "").status, 403);
    // A proxy in front terminates TLS: the page has the scheme of the client's connection.
    let fields =
        format!("X-API-KEY: {ADMIN}\r\nHost: gateway.example\r\nOrigin: https://gateway.example\r\n");
    let login = ask(&named, "POST /yumen/v1/session", &fields, "");
    assert!(login.field("set-cookie").unwrap().contains("; Secure"));
}

#[test]
fn cookie_over_tls_is_bound_to_the_host_and_to_tls() {
    let (scratch, authority) = (Scratch::new(), Authority::new("servers"));
    let pair = authority.sign("admin", &["127.0.0.1"], ecdsa());
    let (ca, cert) = (scratch.write("ca.pem", &authority.cert), scratch.write("own.pem", &pair.cert));
    let key = scratch.write("own.key", &pair.key);
    let node = format!("admin:\n{KEYS}\n  tls: {{certificate: {cert}, key: {key}}}\n");
    let gateway =
        Gateway::launch(scratch, &Options { node: &node, ..Options::default() }, &["--data-dir", "data"]);
    let url = format!("https://{}/yumen/v1/session", gateway.admin);
    let header = format!("X-API-KEY: {ADMIN}");
    let output = Command::new("curl")
        .args(["-si", "-X", "POST", "--cacert", &ca, "-H", &header, &url])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("__Host-yumen_session=") && text.contains("; Secure"), "{text}");
    // A page without TLS can set the other name.
    let after =
        |before: &str| text.split(before).nth(1).unwrap().split([';', '"']).next().unwrap().to_owned();
    let (id, token) = (after("__Host-yumen_session="), after("\"csrf_token\":\""));
    for (name, status) in [("__Host-yumen_session", "200"), ("yumen_session", "401")] {
        let (cookie, token) = (format!("Cookie: {name}={id}"), format!("X-Yumen-Csrf: {token}"));
        let output = Command::new("curl")
            .args([
                "-so",
                "/dev/null",
                "-w",
                "%{http_code}",
                "--cacert",
                &ca,
                "-H",
                &cookie,
                "-H",
                &token,
                &url,
            ])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), status, "{name}");
    }
}

#[test]
fn rates_rows_and_changes_follow_the_gateway() {
    let gateway = gateway("observe: {list_recent_requests: true}\n");
    let browser = BrowserSession::login(&gateway, VIEWER);
    let admin = BrowserSession::login(&gateway, ADMIN);
    let read = |path: &str| browser.ask_as_page(&format!("GET /yumen/v1/{path}"), "").json();
    let first = read("objects/routes");
    assert_eq!((&first["is_whole"], &first["rows"][0]["id"]), (&json!(true), &json!("hello")));
    assert_eq!(
        admin.ask_as_page("PUT /apisix/admin/routes/fresh?wait=applied", &route("/fresh")).status,
        201
    );
    let since = first["revision"].as_u64().unwrap();
    let changed = read(&format!("objects/routes?since={since}"));
    assert_eq!((&changed["is_whole"], changed["rows"].as_array().unwrap().len()), (&json!(false), 1));
    assert_eq!(changed["rows"][0]["plugins"], json!(["mocking"]));
    assert_eq!(admin.ask_as_page("DELETE /apisix/admin/routes/fresh?wait=applied", "").status, 200);
    assert_eq!(read(&format!("objects/routes?since={since}"))["deleted"], json!([]));
    let kept = changed["revision"].as_u64().unwrap();
    assert_eq!(read(&format!("objects/routes?since={kept}"))["deleted"], json!(["fresh"]));
    // A revision that is not kept, or not reached yet, gets the whole list.
    assert_eq!(read("objects/routes?since=999999")["is_whole"], json!(true));
    let rows = || -> Value { read("live?rows=routes")["rows"]["hello"].clone() };
    eventually("the live rates count a request", 30, || {
        assert_eq!(gateway.get("/hello").status, 200);
        let series = rows()["samples"].as_array().cloned().unwrap_or_default();
        series.iter().any(|sample| sample[0].as_u64() > Some(0))
    });
    assert!(read("live")["samples"][0]["memory_bytes"].as_u64() > Some(0));
    assert_eq!(read("recent")[0]["route_id"], json!("hello"));
    assert_eq!(browser.ask_as_page("GET /yumen/v1/live?rows=nothing", "").status, 400);
    assert_eq!(browser.ask_as_page("GET /yumen/v1/objects/nothing", "").status, 404);
}

#[test]
fn plan_of_a_deletion_names_the_lost_object() {
    let gateway = gateway("");
    let admin = BrowserSession::login(&gateway, ADMIN);
    let plan = admin.ask_as_page("POST /yumen/v1/plan?delete=routes/hello", "{}").json();
    assert_eq!(plan["changes"], json!([{ "kind": "routes", "id": "hello", "what": "removed" }]));
    assert_eq!(admin.ask_as_page("POST /yumen/v1/plan?delete=hello", "{}").status, 400);
    assert_eq!(gateway.get("/hello").status, 200);
}

#[test]
fn upstreams_have_the_number_of_their_idle_connections() {
    let gateway = gateway("");
    let upstream = Upstream::text("ok");
    let session = BrowserSession::login(&gateway, ADMIN);
    let route = |nodes: Value| json!({ "uri": "/*", "upstream": { "nodes": nodes } }).to_string();
    let put =
        |nodes: Value| session.ask_as_page("PUT /apisix/admin/routes/1?wait=applied", &route(nodes)).status;
    let idle = || {
        let all = session.ask_as_page("GET /yumen/v1/upstreams?origin=routes/1", "").json();
        all["upstreams"][0]["endpoints"][0]["idle_connections"].as_u64()
    };
    assert_eq!(put(json!({ upstream.address.to_string(): 1 })), 201);
    assert_eq!(idle(), Some(0));
    assert_eq!(gateway.get("/a").status, 200);
    eventually("the connection idles", 10, || idle() == Some(1));
    // Another weight keeps the endpoint and its connections; another endpoint has none.
    assert_eq!(put(json!({ upstream.address.to_string(): 2 })), 200);
    assert_eq!(idle(), Some(1));
    assert_eq!(put(json!({ Upstream::text("other").address.to_string(): 1 })), 200);
    assert_eq!(idle(), Some(0));
}
