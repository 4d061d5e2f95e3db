//! Documents with tests in, problems of the tests out.

use yumen_base::{Now, ProblemLevel};
use yumen_config::document;

use super::{quoted, run};
use crate::testing::compiler;

const TABLE: &str = r#"
routes:
- {id: orders, uri: /orders/*, host: a.com, methods: [GET], upstream_id: u,
   plugins: {key-auth: {}, proxy-rewrite: {regex_uri: ["^/orders/(.*)", "/$1"], headers: {set: {X-A: b}}}}}
- {id: own, uri: /own, upstream: {nodes: {"names.internal:80": 1}}}
- {id: limited, uri: /limited, upstream_id: u, plugins: {limit-count: {count: 1, time_window: 60}}}
upstreams:
- {id: u, nodes: {"10.0.0.1:80": 1}}
consumers:
- {username: alice, plugins: {key-auth: {key: secret}}}
tests:
"#;

/// Checks one test, as a flow map, against the expected problems: `path: message` each.
fn check(test: &str, expected: &[&str]) {
    let text = format!("{TABLE}- {{id: t, {test}}}\n");
    let (resources, problems) = document::parse(&text, &|_| None);
    assert!(problems.is_empty(), "{test}: {problems:?}");
    let mut compiler = compiler();
    let snapshot = compiler.replace_all(resources.clone(), 1).snapshot;
    assert!(compiler.problems().is_empty(), "{test}: {:?}", compiler.problems());
    let found = run(&snapshot, &resources, Now::default());
    assert!(found.iter().all(|one| one.level == ProblemLevel::Error && one.object == "tests/t"), "{found:?}");
    let found: Vec<String> = found.iter().map(|one| format!("{}: {}", one.path, one.message)).collect();
    assert_eq!(found, expected, "{test}");
}

#[test]
fn what_is_expected_and_so_finds_nothing() {
    for test in [
        "request: {url: 'http://a.com/orders/1', consumer: alice}, expect: {route: orders, upstream: u, path: /1, headers: {x-a: b}}",
        "request: {url: 'http://a.com/orders/1'}, expect: {route: orders, status: 401, plugin: key-auth}",
        "request: {url: 'http://a.com/orders/1', headers: {apikey: secret}}, expect: {upstream: upstreams/u}",
        "request: {url: 'http://b.com/orders/1'}, expect: {route: null, status: 404}",
        "request: {url: /own}, expect: {upstream: routes/own, path: /own}",
        "request: {url: /limited}, expect: {upstream: u}",
        "request: {url: 'https://x/own', client_ip: 10.1.2.3}, expect: {headers: {x-real-ip: 10.1.2.3, X-Forwarded-For: 10.1.2.3, X-Forwarded-Proto: https, X-Forwarded-Host: x, X-Forwarded-Port: '443'}}",
        "request: {url: 'http://x:81/own', headers: {X-Forwarded-For: 10.9.9.9, X-Forwarded-Proto: https, X-Real-IP: z}, client_ip: '::1'}, expect: {headers: {Host: 'x:81', X-Real-IP: '::1', X-Forwarded-For: '10.9.9.9, ::1', X-Forwarded-Proto: https, X-Forwarded-Port: '81'}}",
    ] {
        check(test, &[]);
        // A test changes no counter, so it succeeds again in the same process.
        check(test, &[]);
    }
}

#[test]
fn a_request_whose_route_no_pattern_could_tell_in_time_is_refused_here_too() {
    let text = r#"
routes:
- {id: hard, uri: /hard, vars: [[arg_q, "!", "~~", "^(a|a)*\\1b$"]], upstream: {nodes: {"10.0.0.1:80": 1}}}
- {id: any, uri: "/*", upstream: {nodes: {"10.0.0.1:80": 1}}}
tests:
- {id: t, request: {url: "/hard?q=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, expect: {route: any}}
- {id: u, request: {url: "/hard?q=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, expect: {status: 500}}
"#;
    let (resources, problems) = document::parse(text, &|_| None);
    assert!(problems.is_empty(), "{problems:?}");
    let snapshot = compiler().replace_all(resources.clone(), 1).snapshot;
    let found = run(&snapshot, &resources, Now::default());
    let objects: Vec<_> = found.iter().map(|one| &*one.object).collect();
    assert_eq!(objects, ["tests/t"], "{found:?}");
}

#[test]
fn what_is_not_as_expected_says_both_and_why() {
    check(
        "request: {url: 'http://b.com/orders/1'}, expect: {route: orders}",
        &["expect.route: expected route orders, found no route (404) (orders: its host is a.com, not b.com)"],
    );
    check(
        "request: {method: POST, url: 'http://a.com/orders/1'}, expect: {route: orders}",
        &[
            "expect.route: expected route orders, found no route (404) (orders: the method is POST, allowed are GET)",
        ],
    );
    check(
        "request: {url: /own}, expect: {route: null}",
        &["expect.route: expected route null (404), found route own"],
    );
    check(
        "request: {url: 'http://a.com/orders/1'}, expect: {path: /1, upstream: u, headers: {X-A: b}}",
        &[
            "expect.upstream: expected upstream u, found a response 401 of key-auth (routes/orders)",
            "expect.path: expected path /1, found a response 401 of key-auth (routes/orders)",
            "expect.headers.X-A: expected X-A: b, found a response 401 of key-auth (routes/orders)",
        ],
    );
    check(
        "request: {url: /own}, expect: {status: 403, plugin: ip-restriction, certificate: c}",
        &[
            "expect.status: expected status 403, found the request going to routes/own",
            "expect.plugin: expected a response of ip-restriction, found the request going to routes/own",
            "expect.certificate: expected certificate c, found the node's own certificate",
        ],
    );
    check(
        "request: {url: /own}, expect: {headers: {X-A: b}}",
        &["expect.headers.X-A: expected X-A: b, found no such field"],
    );
    check(
        "request: {url: 'x:'}, expect: {status: 400}",
        &[r#"request.url: "x:" is neither http://host/path, https://host/path nor /path"#],
    );
}

#[test]
fn the_hint_is_a_command_to_paste() {
    let text = format!(
        "{TABLE}- {{id: t, request: {{url: 'http://b.com/orders/1?a=1&b', headers: {{X: it's}}, client_ip: '::1', \
         consumer: alice, sni: c.com}}, expect: {{route: orders}}}}\n"
    );
    let (resources, _) = document::parse(&text, &|_| None);
    let snapshot = compiler().replace_all(resources.clone(), 1).snapshot;
    let found = run(&snapshot, &resources, Now::default());
    let expected = r"see why: yumen explain GET 'http://b.com/orders/1?a=1&b' -H 'X: it'\''s' --client-ip ::1 --consumer alice --sni c.com --why-not orders --file FILE";
    assert_eq!(found[0].hint.as_deref(), Some(expected));
    assert_eq!(quoted(""), "''");
}

#[test]
fn messages_have_no_secrets_of_fields_and_urls() {
    let text = format!(
        "{TABLE}- {{id: t, request: {{url: '/own?token=s3cr3t', headers: {{apikey: s3cr3t}}}}, expect: {{path: /x?sig=s3cr3t, \
         headers: {{apikey: s3cr3t-too, X-A: b}}}}}}\n"
    );
    let (resources, _) = document::parse(&text, &|_| None);
    let snapshot = compiler().replace_all(resources.clone(), 1).snapshot;
    let found = run(&snapshot, &resources, Now::default());
    assert_eq!(found.len(), 3, "{found:?}");
    for problem in &found {
        let text = format!("{problem} {:?}", problem.hint);
        assert!(text.contains("-H 'apikey: ******'") && !text.contains("s3cr3t"), "{text}");
    }
}

#[test]
fn a_test_that_is_not_understood_is_the_compilers_to_tell() {
    for (test, part) in [
        ("{id: t, request: {url: /}, expect: {}}", "at least 1 properties"),
        ("{id: t, request: {url: /}, expect: {route: a, colour: red}}", "colour"),
        ("{id: t, request: {url: /}, expect: {status: 401, path: /a}}", "cannot both be expected"),
        ("{id: t, request: {url: /}, expect: {route: [a]}}", "or null for none"),
        ("{id: t, request: {}, expect: {route: a}}", "url"),
        ("{id: t, request: {url: /, client_ip: nobody}, expect: {route: a}}", "client_ip"),
        ("{id: t, request: {url: /, why_not: a}, expect: {route: a}}", "yumen explain"),
    ] {
        let (resources, _) = document::parse(&format!("tests:\n- {test}\n"), &|_| None);
        let mut compiler = compiler();
        let snapshot = compiler.replace_all(resources.clone(), 1).snapshot;
        let problems = compiler.problems();
        assert_eq!(problems.len(), 1, "{test}: {problems:?}");
        assert!(
            problems[0].object == "tests/t" && problems[0].to_string().contains(part),
            "{test}: {problems:?}"
        );
        assert!(run(&snapshot, &resources, Now::default()).is_empty());
    }
}
