//! Requests to the translated Ingresses of the goldens, as the gateway would handle them: `explain` on the compiled
//! resources of a case after its last step.

mod compiler;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use yumen_base::time::Now;
use yumen_config::resource::Question;
use yumen_config::{Kind, Resource};
use yumen_snapshot::Snapshot;
use yumen_snapshot::explain::{ExplainContext, RequestExplanation, explain};

const NOW: Now = Now { mono_us: 0, unix_ms: 1_800_000_000_000 };

/// The resources of a case after its last step.
fn resources(case: &str) -> Vec<Resource> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/goldens/ingress/{case}.yaml"));
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{case}: {error}"));
    let all = serde_yaml_ng::Deserializer::from_str(&text).map(Value::deserialize);
    let documents = all.collect::<Result<Vec<_>, _>>().expect("YAML");
    let expected = documents.iter().find(|document| document["kind"] == "Expected").expect("a result");
    let mut resources = BTreeMap::new();
    for delta in expected["deltas"].as_array().into_iter().flatten() {
        for (name, value) in delta["resources"].as_object().into_iter().flatten() {
            let (kind, id) = name.split_once('/').expect("kind and id");
            let kind = Kind::ALL.iter().copied().find(|one| one.name() == kind).expect("a kind");
            let mut value = value.clone();
            if value["nodes"].as_array().is_some_and(Vec::is_empty) {
                value["nodes"] = json!([{ "host": "192.0.2.1", "port": 80, "weight": 1 }]);
            }
            match value == "deleted" {
                true => resources.remove(name),
                false => resources.insert(name.clone(), Resource::new(kind, id, &value)),
            };
        }
    }
    resources.into_values().collect()
}

fn ask(snapshot: &Snapshot, request: &str) -> RequestExplanation {
    // `GET http://host/path Name: value`.
    let mut words = request.splitn(3, ' ');
    let (method, url) = (words.next().expect("a method"), words.next().expect("a URL"));
    let mut headers = BTreeMap::new();
    if let Some((name, value)) = words.next().and_then(|field| field.split_once(": ")) {
        headers.insert(name.to_owned(), value.to_owned());
    }
    let listener = if url.starts_with("https:") { "ingress!https" } else { "ingress!http" };
    let question = json!({ "method": method, "url": url, "headers": headers, "listener": listener });
    let question: Question = serde_json::from_value(question).expect("a question");
    let context = ExplainContext { now: NOW, ..ExplainContext::default() };
    explain(snapshot, &question, &context).expect("a valid question")
}

/// The response with its location, or the upstream with host and path of the request to it.
fn result(explained: &RequestExplanation) -> String {
    if let Some(answer) = &explained.answer {
        let location = answer.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("location"));
        return match location {
            Some((_, location)) => format!("{} {location}", answer.status),
            None => answer.status.to_string(),
        };
    }
    match &explained.upstream {
        Some(upstream) => {
            let origin = upstream.view.origin.trim_start_matches("upstreams/");
            format!("{origin} {} {}", upstream.host.as_deref().unwrap_or("-"), upstream.path)
        }
        None => "no upstream".to_owned(),
    }
}

#[test]
fn requests_reach_the_services_that_ingress_nginx_would_choose() {
    let table: &[(&str, &[(&str, &str)])] = &[
        (
            "regex-host",
            &[
                ("GET http://a.example.com/fooXYZ", "shop/cart!ingress!80.http a.example.com /bar"),
                ("GET http://a.example.com/headers", "shop/head!ingress!80.http a.example.com /headers"),
                ("GET http://a.example.com/other", "404"),
            ],
        ),
        (
            "path-types",
            &[
                ("GET http://a.example.com/foo", "shop/cart!ingress!80.http a.example.com /foo"),
                ("GET http://a.example.com/foo/", "shop/cart!ingress!80.http a.example.com /foo/"),
                ("GET http://a.example.com/foo/x?y=1", "shop/cart!ingress!80.http a.example.com /foo/x?y=1"),
                ("GET http://a.example.com/foobar", "404"),
                ("GET http://a.example.com/FOO", "404"),
                ("GET http://a.example.com/bar", "shop/cart!ingress!80.http a.example.com /bar"),
                ("GET http://a.example.com/bar/", "404"),
                ("GET http://a.example.com/bazaar", "shop/cart!ingress!80.http a.example.com /bazaar"),
                ("GET http://a.example.com/x/../foo", "shop/cart!ingress!80.http a.example.com /foo"),
                ("GET http://a.example.com//foo", "shop/cart!ingress!80.http a.example.com //foo"),
                ("GET http://unknown.example.com/foo", "404"),
            ],
        ),
        (
            "known-host",
            &[
                ("GET http://a.example.com/x", "shop/cart!ingress!80.http a.example.com /x"),
                ("GET http://a.example.com/y", "404"),
                ("GET http://b.example.com/y", "shop/any!ingress!80.http b.example.com /y"),
                ("GET http://a.b.example.com/y", "404"),
            ],
        ),
        (
            "slash",
            &[
                ("GET http://a.example.com/exact?x=1", "301 http://a.example.com/exact/?x=1"),
                ("GET http://a.example.com/prefix", "301 http://a.example.com/prefix/"),
                ("GET http://a.example.com/both", "shop/cart!ingress!80.http a.example.com /both"),
                ("GET http://a.example.com/exact/", "shop/cart!ingress!80.http a.example.com /exact/"),
            ],
        ),
        (
            "same-path",
            &[
                ("GET http://a.example.com/", "shop/late!ingress!80.http a.example.com /"),
                ("GET http://b.example.com/", "shop/cart!ingress!80.http b.example.com /"),
            ],
        ),
        (
            "named-ports",
            &[
                ("GET http://a.example.com/name", "shop/cart!ingress!80.http a.example.com /name"),
                ("GET http://a.example.com/number", "shop/cart!ingress!81.http a.example.com /number"),
                ("GET http://a.example.com/target", "shop/cart!ingress!80.http a.example.com /target"),
                (
                    "GET http://a.example.com/targetname",
                    "shop/cart!ingress!81.http a.example.com /targetname",
                ),
                ("GET http://a.example.com/none", "503"),
            ],
        ),
        (
            "default-backend",
            &[
                ("GET http://a.example.com/x", "shop/cart!ingress!80.http a.example.com /x"),
                ("GET http://a.example.com/y", "shop/rest!ingress!80.http a.example.com /y"),
                ("GET http://b.example.com/", "shop/rest!ingress!80.http b.example.com /"),
                ("GET http://c.example.com/", "shop/all!ingress!80.http c.example.com /"),
            ],
        ),
    ];
    check(table);
}

#[test]
fn annotations_decide_about_redirects_rewrites_and_responses() {
    let table: &[(&str, &[(&str, &str)])] = &[
        (
            "rewrite-groups",
            &[
                ("GET http://a.example.com/a", "shop/cart!ingress!80.http a.example.com /"),
                ("GET http://a.example.com/a/x/y?q=1", "shop/cart!ingress!80.http a.example.com /x/y?q=1"),
                ("GET http://a.example.com/ab", "404"),
            ],
        ),
        (
            "rewrite-redirect",
            &[
                ("GET http://a.example.com/old/x", "302 https://b.example.com/new/x"),
                ("GET http://b.example.com/old", "302 https://c.example.com/"),
            ],
        ),
        (
            "use-regex",
            &[
                ("GET http://a.example.com/items/12", "shop/cart!ingress!80.http a.example.com /items/12"),
                ("GET http://a.example.com/items/x", "404"),
                ("GET http://a.example.com/AB", "shop/cart!ingress!80.http a.example.com /AB"),
                ("GET http://a.example.com/docs", "404"),
                ("GET http://a.example.com/docs/x", "shop/cart!ingress!80.http a.example.com /docs/x"),
            ],
        ),
        (
            "tls",
            &[
                ("GET http://a.example.com/x/", "308 https://a.example.com/x"),
                ("GET http://a.example.com/x?y=/", "308 https://a.example.com/x?y=/"),
                (
                    "GET http://a.example.com/.well-known/acme-challenge/t",
                    "shop/cart!ingress!80.http a.example.com /.well-known/acme-challenge/t",
                ),
                ("GET https://a.example.com/x/", "shop/cart!ingress!80.http a.example.com /x/"),
            ],
        ),
        (
            "tls-force",
            &[
                ("GET http://b.example.com/", "308 https://b.example.com"),
                ("GET http://a.example.com/", "shop/cart!ingress!80.http a.example.com /"),
            ],
        ),
        ("tls-broken", &[("GET http://c.example.com/x", "308 https://c.example.com/x")]),
        (
            "fixed-redirects",
            &[
                ("GET http://a.example.com/x?y", "302 https://t.example.com"),
                ("GET http://b.example.com/", "308 https://p.example.com/x"),
                ("GET http://c.example.com/", "300 https://p.example.com/"),
            ],
        ),
        (
            "app-root",
            &[
                ("GET http://a.example.com/", "302 http://a.example.com/app"),
                ("GET http://a.example.com/x", "shop/cart!ingress!80.http a.example.com /x"),
                ("GET http://b.example.com/", "302 http://b.example.com/app"),
                ("GET http://c.example.com/", "302 http://c.example.com/app"),
                ("GET http://c.example.com/app", "shop/cart!ingress!80.http c.example.com /app"),
                ("GET http://c.example.com/x", "404"),
            ],
        ),
        (
            "from-to-www",
            &[
                ("GET http://example.com/x?y", "308 http://www.example.com/x?y"),
                ("GET https://example.com/x", "308 https://www.example.com/x"),
                ("GET http://b.example.com/", "shop/cart!ingress!80.http b.example.com /"),
            ],
        ),
        (
            "server-alias",
            &[
                ("GET http://c.example.com/", "shop/cart!ingress!80.http c.example.com /"),
                ("GET http://x.d.example.com/", "shop/cart!ingress!80.http x.d.example.com /"),
            ],
        ),
        (
            "upstream-vhost",
            &[
                ("GET http://a.example.com/", "shop/cart!ingress!80.http x.example.com /"),
                ("GET http://b.example.com/", "shop/cart!ingress!80.http cart.shop.svc.cluster.local /"),
            ],
        ),
        (
            "canary",
            &[
                ("GET http://a.example.com/ X-Canary: always", "shop/next!ingress!80.http a.example.com /"),
                ("GET http://a.example.com/ X-Canary: never", "shop/cart!ingress!80.http a.example.com /"),
                (
                    "GET http://a.example.com/ Cookie: canary=always",
                    "shop/next!ingress!80.http a.example.com /",
                ),
                ("GET http://b.example.com/ X-Region: eu-1", "shop/next!ingress!80.http b.example.com /"),
            ],
        ),
        (
            "cors",
            &[
                ("OPTIONS http://a.example.com/", "204"),
                ("OPTIONS http://b.example.com/ Origin: https://other.example.com", "204"),
                ("GET http://a.example.com/", "shop/cart!ingress!80.http a.example.com /"),
            ],
        ),
        ("address-lists", &[("GET http://a.example.com/", "403"), ("GET http://b.example.com/", "403")]),
        ("auth-basic", &[("GET http://a.example.com/x", "401"), ("GET http://a.example.com/z", "401")]),
        (
            "auth-tls-missing",
            &[("GET http://a.example.com/x", "403"), ("GET http://a.example.com/other", "403")],
        ),
        ("auth-tls", &[("GET http://a.example.com/", "302 https://errors.example.com/")]),
        (
            "snippets",
            &[
                ("GET http://b.example.com/ User-Agent: a Bot", "403"),
                ("GET http://b.example.com/", "shop/cart!ingress!80.http b.example.com /"),
                ("GET http://c.example.com/health", "200"),
                ("GET http://c.example.com/x/.git/config", "403"),
                ("GET http://c.example.com/x", "shop/cart!ingress!80.http c.example.com /x"),
            ],
        ),
        (
            "challenge",
            &[(
                "GET http://a.example.com/.well-known/acme-challenge/t",
                "shop/cart!ingress!80.http a.example.com /.well-known/acme-challenge/t",
            )],
        ),
        (
            "invalid-annotation",
            &[
                ("GET http://a.example.com/", "503"),
                ("GET http://b.example.com/admin/x", "503"),
                ("GET http://b.example.com/x", "shop/cart!ingress!80.http b.example.com /x"),
            ],
        ),
        (
            "chart-snippets",
            &[
                (
                    "GET http://cloud.example.com/.well-known/webfinger?resource=a",
                    "shop/cart!ingress!80.http cloud.example.com /index.php/.well-known/webfinger?resource=a",
                ),
                (
                    "GET http://cloud.example.com/.well-known/host-meta",
                    "shop/cart!ingress!80.http cloud.example.com /public.php?service=host-meta",
                ),
                (
                    "GET http://cloud.example.com/.well-known/carddav",
                    "301 http://cloud.example.com/remote.php/dav",
                ),
                ("GET http://cloud.example.com/robots.txt", "404"),
                ("GET http://cloud.example.com/config/x", "403"),
                ("GET http://cloud.example.com/x", "shop/cart!ingress!80.http cloud.example.com /x"),
                ("GET http://minio.example.com/x", "shop/cart!ingress!80.http minio.example.com /x"),
                ("GET http://vague.example.com/old/x", "503"),
                ("GET http://vague.example.com/pub/x", "503"),
                ("GET http://vague.example.com/private/x", "403"),
                ("GET http://vague.example.com/x", "shop/cart!ingress!80.http vague.example.com /x"),
            ],
        ),
        (
            "regex-broken",
            &[
                ("GET http://a.example.com/api/v2/x", "shop/cart!ingress!80.http a.example.com /api/v2/x"),
                ("GET http://a.example.com/API/v1/x", "503"),
                ("GET http://a.example.com/x", "shop/cart!ingress!80.http a.example.com /x"),
            ],
        ),
        (
            "regex-refused",
            &[
                ("GET http://a.example.com/admin/x", "503"),
                ("GET http://a.example.com/x", "shop/cart!ingress!80.http a.example.com /x"),
            ],
        ),
        (
            "client-address",
            &[
                (
                    "GET http://a.example.com/x?token=a X-Forwarded-For: 192.0.2.1",
                    "shop/cart!ingress!80.http a.example.com /x?token=a",
                ),
                ("GET http://a.example.com/x?token=a X-Forwarded-For: 10.9.0.1", "403"),
                ("GET http://a.example.com/x?token X-Forwarded-For: 192.0.2.1", "401"),
                ("GET http://a.example.com/x?token= X-Forwarded-For: 192.0.2.1", "401"),
                ("GET http://a.example.com/x", "401"),
            ],
        ),
        (
            "server-snippet-denied",
            &[
                ("GET http://a.example.com/", "403"),
                ("GET http://a.example.com/admin/x", "403"),
                ("GET http://b.example.com/", "shop/cart!ingress!80.http b.example.com /"),
                ("GET http://b.example.com/x", "shop/cart!ingress!80.http b.example.com /x"),
                ("GET http://c.example.com/", "shop/cart!ingress!80.http c.example.com /"),
                ("GET http://c.example.com/ X-Bad: 1", "403"),
                ("GET http://c.example.com/x", "503"),
            ],
        ),
        (
            "config-map-denied",
            &[
                ("GET http://a.example.com/", "403"),
                ("GET http://b.example.com/x", "403"),
                ("GET http://unknown.example.com/", "403"),
            ],
        ),
        (
            "snippet-order",
            &[
                ("GET http://a.example.com/", "200"),
                ("GET http://a.example.com/ X-Bad: 1", "403"),
                ("GET http://a.example.com/admin", "403"),
                ("GET http://a.example.com/x/secret", "403"),
                ("GET http://a.example.com/x%0a/.git/config", "403"),
                ("GET http://a.example.com/app/.git/config", "403"),
                ("GET http://a.example.com/app/%2egit/config", "403"),
                ("GET http://a.example.com/app/x/../.git/config", "403"),
                ("GET http://a.example.com/app%2f.git/config", "403"),
                ("GET http://a.example.com/y/..%2fadmin", "403"),
                ("GET http://b.example.com/x%2fz", "403"),
                ("GET http://a.example.com/app/secret", "403"),
                ("GET http://c.example.com/", "403"),
                ("GET http://c.example.com/ User-Agent: a Bot", "403"),
                ("GET http://c.example.com/ User-Agent: curl", "shop/cart!ingress!80.http c.example.com /"),
                ("GET http://a.example.com/app/x", "shop/cart!ingress!80.http a.example.com /app/x"),
            ],
        ),
        (
            "odd-rules",
            &[
                ("GET http://a.example.com/static/x", "503"),
                ("GET http://a.example.com/x", "shop/cart!ingress!80.http a.example.com /x"),
            ],
        ),
        (
            "refused-annotations",
            &[("GET http://a.example.com/", "503"), ("GET http://d.example.com/", "503")],
        ),
    ];
    check(table);
}

fn check(table: &[(&str, &[(&str, &str)])]) {
    let mut failures = Vec::new();
    for (case, requests) in table {
        let snapshot = compiler::compile(resources(case)).snapshot;
        for (request, expected) in *requests {
            let found = result(&ask(&snapshot, request));
            if found != *expected {
                failures.push(format!("{case}: {request}\n  expected {expected}\n  found    {found}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
