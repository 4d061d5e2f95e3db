//! Documents in, findings out: each check finds its cases, and nothing in valid documents.

use yumen_config::document;

use super::{CertificateFacts, KeyFacts, LintInput, lint};
use crate::testing::compiler;

const DAY_S: u64 = 86_400;
const NOW_S: u64 = 1_700_000_000;

/// Parses `DAYS BITS` from a padded text: the remaining validity of a certificate, and the length of its key.
fn facts(text: &str) -> Result<CertificateFacts, String> {
    let mut words = text.split_whitespace().map(|word| word.parse::<i64>());
    let (Some(Ok(days)), Some(Ok(bits))) = (words.next(), words.next()) else {
        return Err("not read".into());
    };
    let not_after_unix_s = NOW_S as i64 + days * DAY_S as i64;
    let not_before_unix_s = not_after_unix_s - 365 * DAY_S as i64;
    let key = if bits == 0 { KeyFacts::Other } else { KeyFacts::Rsa { bits: bits as usize } };
    Ok(CertificateFacts { not_before_unix_s, not_after_unix_s, key })
}

fn found(text: &str, strict: bool) -> Vec<String> {
    let (resources, problems) = document::parse(text, &|_| None);
    assert!(problems.is_empty(), "{text}: {problems:?}");
    let mut compiler = compiler();
    let snapshot = compiler.replace_all(resources.clone(), 1).snapshot;
    let problems = compiler.problems();
    assert!(
        problems.iter().all(|one| one.level == yumen_base::ProblemLevel::Warning),
        "{text}: {problems:?}"
    );
    let input = LintInput {
        resources: &resources,
        snapshot: &snapshot,
        now_unix_s: NOW_S,
        certificate: &facts,
        strict,
    };
    let problems = lint(&input);
    problems.iter().map(|one| one.to_string().lines().next().unwrap_or_default().to_owned()).collect()
}

fn check(text: &str, expected: &[&str]) {
    assert_eq!(found(text, false), expected, "{text}");
}

/// Routes as flow maps, each with an upstream of its own.
fn check_routes(routes: &[&str], expected: &[&str]) {
    let route = |route: &&str| format!("- {{{route}, upstream: {{nodes: {{\"10.0.0.1:80\": 1}}}}}}\n");
    check(&format!("routes:\n{}", routes.iter().map(route).collect::<String>()), expected);
}

#[test]
fn routes_that_nobody_reaches_are_errors() {
    let shadowed = |by: &str, why: &str| {
        format!("error: routes/b at uri: no request gets to this route: routes/{by} {why}")
    };
    let same = "has the same host, path and priority and a lower id";
    check_routes(&["id: a, uri: /x", "id: b, uri: /x"], &[&shadowed("a", same)]);
    check_routes(
        &["id: a, uri: /x, priority: 1", "id: b, uri: /x, methods: [GET], vars: [[arg_a, '==', '1']]"],
        &[&shadowed("a", "has the same host and path and a higher priority")],
    );
    check_routes(
        &["id: a, uri: '/u/:id', create_time: 1", "id: b, uri: '/u/:id', create_time: 2"],
        &[&shadowed("a", "has the same host, path and priority and is older")],
    );
    check_routes(
        &["id: a, uri: '/u/:name', create_time: 2", "id: b, uri: '/u/:id', create_time: 1"],
        &[&shadowed("a", "has the same host and priority and a longer uri that matches the same paths")],
    );
    check_routes(
        &["id: a, uri: /api/*, host: '*'", "id: b, uris: [/api/x, '/api/y/*']"],
        &[&shadowed("a", "has the host * and therefore precedes routes without a host")],
    );
    check_routes(&["id: a, uri: /x", "id: a2, uri: /y", "id: b, uris: [/x, /y]"], &[&shadowed("a", same)]);
}

#[test]
fn routes_that_share_requests_by_age_alone_are_warned_of() {
    check_routes(
        &["id: a, uri: /x, methods: [GET, PUT]", "id: b, uri: /x, methods: [GET, POST]"],
        &[
            "warning: routes/b at priority: routes/a has the same host, path and priority and a lower id, and gets the requests of both",
        ],
    );
}

#[test]
fn routes_that_only_look_alike_are_in_order() {
    for routes in [
        ["id: a, uri: /x, methods: [GET]", "id: b, uri: /x, methods: [POST]"],
        ["id: a, uri: /x, priority: 1, vars: [[arg_a, '==', '1']]", "id: b, uri: /x"],
        ["id: a, uri: /x, remote_addrs: [10.0.0.0/8], priority: 1", "id: b, uri: /x"],
        ["id: a, uri: /x, host: a.com", "id: b, uri: /x"],
        ["id: a, uri: /x, methods: [GET], priority: 1", "id: b, uri: /x"],
        ["id: a, uri: /x", "id: b, uris: [/x, /y]"],
        ["id: a, uri: '/*'", "id: b, uri: /x"],
        ["id: a, uri: /x, host: '*'", "id: b, uri: /x/*"],
    ] {
        check_routes(&routes, &[]);
    }
}

#[test]
fn conditions_that_never_hold_are_told() {
    let none = |variable: &str| format!("no value of {variable} satisfies all conditions");
    for (vars, reason) in [
        ("[[arg_a, '==', '1'], [arg_a, '==', '2']]", none("arg_a")),
        ("[[arg_a, '==', '1'], [arg_a, in, ['2', '3']]]", none("arg_a")),
        ("[[arg_a, '==', '1'], [arg_a, '~=', 1]]", none("arg_a")),
        ("[[arg_a, '==', '1'], [arg_a, '!', '==', '1']]", none("arg_a")),
        ("[[arg_a, in, []]]", none("arg_a")),
        ("[[arg_a, '==', x], [arg_a, '>', 1]]", none("arg_a")),
        ("[[scheme, '==', HTTPS]]", none("scheme")),
        ("[AND, [scheme, '==', http], [scheme, '==', https]]", none("scheme")),
        ("[[OR, [arg_a, in, []], [[arg_b, '==', 1], [arg_b, '==', 2]]]]", none("arg_a")),
        ("[[arg_a, '>', 5], [arg_a, '<=', 5]]", "arg_a would have to be beyond 5 and 5 at once".into()),
        (
            "[[request_method, '==', get]]",
            "request_method is never \"get\": methods are in upper case".into(),
        ),
    ] {
        let route = format!("id: r, uri: /r, vars: {vars}");
        let expected = format!(
            "error: routes/r at vars: contradictory conditions, never matched: {reason}; no request gets to this route"
        );
        check_routes(&[&route], &[&expected]);
        let plugin = format!("id: r, uri: /r, plugins: {{cors: {{_meta: {{filter: {vars}}}}}}}");
        let expected = format!(
            "error: routes/r at plugins.cors._meta.filter: contradictory conditions, never matched: {reason}; the \
             plugin never runs"
        );
        check_routes(&[&plugin], &[&expected]);
    }
    for vars in [
        "[[arg_a, '==', '1'], [arg_b, '==', '2']]",
        "[[arg_a, '==', '1'], [arg_a, in, ['1', '3']]]",
        "[[arg_a, '>=', 5], [arg_a, '<=', 5]]",
        "[[OR, [arg_a, '==', 1], [arg_a, '==', 2]]]",
        "[['!AND', [arg_a, '==', 1], [arg_a, '==', 2]]]",
        "[[request_method, in, [get, GET]]]",
        "[[arg_a, '~~', a], [arg_a, '~~', b]]",
        "[[arg_a, '==', 1], [arg_a, '==', '1']]",
    ] {
        check_routes(&[&format!("id: r, uri: /r, vars: {vars}")], &[]);
    }
}

#[test]
fn plugins_that_contradict_each_other_are_told() {
    for (plugins, expected) in [
        (
            "redirect: {uri: /b}, proxy-rewrite: {uri: /c}",
            "warning: routes/r at plugins.proxy-rewrite: redirect responds to every request, so proxy-rewrite has no effect",
        ),
        (
            "key-auth: {}, basic-auth: {}",
            "warning: routes/r at plugins: several authentication plugins: a client must satisfy all of basic-auth and key-auth",
        ),
        (
            "consumer-restriction: {whitelist: [a]}",
            "error: routes/r at plugins.consumer-restriction: refuses every request: no plugin of the route identifies a consumer",
        ),
        (
            "cors: {allow_credential: true, allow_origins: '**', allow_methods: '**', allow_headers: '**'}",
            "warning: routes/r at plugins.cors.allow_origins: every site on the web may read responses with its visitors' credentials",
        ),
    ] {
        check_routes(&[&format!("id: r, uri: /r, plugins: {{{plugins}}}")], &[expected]);
    }
    for plugins in [
        "redirect: {http_to_https: true}, mocking: {response_example: x}",
        "redirect: {uri: /b, _meta: {filter: [[arg_a, '==', '1']]}}, mocking: {response_example: x}",
        "consumer-restriction: {type: route_id, whitelist: [r]}",
        "key-auth: {}, consumer-restriction: {whitelist: [a]}",
        "cors: {allow_credential: true, allow_origins: 'https://a.com', allow_methods: '**', allow_headers: '**'}",
    ] {
        check_routes(&[&format!("id: r, uri: /r, plugins: {{{plugins}}}")], &[]);
    }
}

const OPEN: &str = "routes:
- {id: open, uri: /open, upstream: {nodes: {'10.0.0.1:80': 1}}}
- {id: mine, uri: /mine, remote_addrs: [10.0.0.0/8], upstream: {nodes: {'10.0.0.1:80': 1}}}
- {id: gone, uri: /gone, plugins: {redirect: {uri: /open}}}
";

#[test]
fn an_open_route_is_told_where_others_ask_who_the_client_is_or_when_strict() {
    let open = "warning: routes/open at plugins: public route: no plugin authenticates the client";
    assert_eq!(found(OPEN, false), [""; 0]);
    assert_eq!(found(OPEN, true), [open]);
    let guarded =
        "- {id: shut, uri: /shut, plugins: {key-auth: {}}, upstream: {nodes: {'10.0.0.1:80': 1}}}\n";
    assert_eq!(found(&format!("{OPEN}{guarded}"), false), [open]);
    let forward_auth_route = "- {id: asked, uri: /asked, plugins: {forward-auth: {uri: 'http://10.0.0.2/'}}, upstream: {nodes: {'10.0.0.1:80': 1}}}\n";
    assert_eq!(found(&format!("{OPEN}{forward_auth_route}"), false), [open]);
    let key_auth_rule = "global_rules:\n- {id: all, plugins: {key-auth: {}}}\n";
    assert_eq!(found(&format!("{OPEN}{key_auth_rule}"), true), [""; 0]);
}

#[test]
fn objects_nobody_names_and_upstreams_without_endpoints_are_told() {
    check(
        "upstreams:\n- {id: used, nodes: {'10.0.0.1:80': 1}}\n- {id: unused, nodes: {'10.0.0.1:80': 1}}\n\
         - {id: empty, nodes: []}\n- {id: 7, nodes: {'10.0.0.1:80': 0}}\n- {id: name, nodes: {'a.internal:80': 1}}\n\
         services:\n- {id: s, upstream_id: used}\n- {id: t, upstream: {nodes: []}}\n\
         routes:\n- {id: r, uri: /r, service_id: s}\n- {id: r2, uri: /r2, upstream_id: empty, service_id: t}\n\
         - {id: r3, uri: /r3, upstream_id: 7}\n- {id: r4, uri: /r4, upstream_id: name}\n\
         plugin_configs:\n- {id: p, plugins: {}}\nconsumer_groups:\n- {id: g, plugins: {}}\n\
         consumers:\n- {username: a}\n- {username: b, plugins: {key-auth: {key: k}}}\n- {username: c}\n\
         credentials:\n- {id: x, username: c, plugins: {key-auth: {key: l}}}\n",
        &[
            "warning: consumer_groups/g: unused: no other object references this one",
            "warning: consumers/a at plugins: unreachable consumer: it has neither a key nor a credential",
            "warning: plugin_configs/p: unused: no other object references this one",
            "error: services/t at upstream.nodes: no endpoint: requests get 503",
            "error: upstreams/7 at nodes: all endpoints have weight 0: requests get 503",
            "error: upstreams/empty at nodes: no endpoint: requests get 503",
            "warning: upstreams/unused: unused: no other object references this one",
        ],
    );
}

#[test]
fn certificates_are_judged_by_their_end_and_key() {
    let pem = |facts: &str| format!("\"{facts}{}\"", " ".repeat(130));
    let ssl = |id: &str, facts: &str, more: &str| {
        format!("- {{id: {id}, sni: {id}.com, cert: {}, key: {}{more}}}\n", pem(facts), pem("k"))
    };
    let text = format!(
        "ssls:\n{}{}{}{}{}{}",
        ssl("fine", "90 2048", ""),
        ssl("other", "90 0", ", ssl_protocols: [TLSv1.1, TLSv1.2]"),
        ssl("weak", "90 1024", ""),
        ssl("soon", "12 0", ""),
        ssl("over", "-3 0", ""),
        ssl("later", "400 0", ""),
    );
    check(
        &text,
        &[
            "error: ssls/later at cert: the certificate is not valid yet: clients refuse it",
            "warning: ssls/other at ssl_protocols: TLSv1.1 is obsolete (RFC 8996)",
            "error: ssls/over at cert: the certificate expired 3 days ago: clients refuse it",
            "warning: ssls/soon at cert: the certificate expires in 12 days",
            "warning: ssls/weak at cert: the RSA key has 1024 bits, at least 2048 are safe",
        ],
    );
}

#[test]
fn wildcards_of_routes_that_reach_past_those_of_client_certificates_are_told() {
    let pem = format!("\"90 0{}\"", " ".repeat(130));
    let ssl = |id: &str, sni: &str, more: &str| {
        format!("- {{id: {id}, sni: '{sni}', cert: {pem}, key: {pem}{more}}}\n")
    };
    let client = format!(", client: {{ca: {pem}}}");
    let to = "plugins: {key-auth: {}}, upstream: {nodes: {'10.0.0.1:80': 1}}";
    let routes = format!(
        "routes:\n- {{id: r, uri: /r, hosts: [closed.test, '*.closed.test'], {to}}}\n- {{id: o, uri: /o, host: '*.open.test', {to}}}\n"
    );
    let guarded = format!("{}{}", ssl("c", "*.closed.test", &client), ssl("o", "*.open.test", ""));
    let expected = "warning: routes/r at hosts[1]: *.closed.test of a route reaches names such as a.b.closed.test, which *.closed.test of ssls/c does not: they are served without a client certificate";
    check(&format!("{routes}ssls:\n{guarded}"), &[expected]);
    // a certificate for every name applies there too
    check(&format!("{routes}ssls:\n{guarded}{}", ssl("all", "*", &client)), &[]);
    let stream = "stream_routes:\n- {id: s, sni: '*.closed.test', upstream: {nodes: {'10.0.0.1:80': 1}, scheme: tcp}}\n";
    let reaches = "warning: stream_routes/s at sni: *.closed.test of a stream route reaches names such as a.b.closed.test, which *.closed.test of ssls/c does not:";
    let refused = format!("{reaches} listeners of protocol tls refuse them");
    check(&format!("{stream}ssls:\n{guarded}"), &[&refused]);
    let served = format!("{reaches} they are served without a client certificate");
    check(&format!("{stream}ssls:\n{guarded}{}", ssl("all", "*", "")), &[&served]);
    check(&format!("{stream}ssls:\n{guarded}{}", ssl("all", "*", &client)), &[]);
}

#[test]
fn strict_tells_of_streams_that_look_at_no_name_where_some_names_are_closed() {
    let pem = format!("\"90 0{}\"", " ".repeat(130));
    let ssl =
        |id: &str, more: &str| format!("- {{id: {id}, sni: {id}.test, cert: {pem}, key: {pem}{more}}}\n");
    let stream =
        "stream_routes:\n- {id: s, server_port: 9100, upstream: {nodes: {'10.0.0.1:80': 1}, scheme: tcp}}\n";
    let (open, closed) = (ssl("open", ""), ssl("closed", &format!(", client: {{ca: {pem}}}")));
    let expected = "warning: stream_routes/s at sni: a stream route without sni: a listener of protocol tls forwards clients under open.test, which requires no client certificate, as well as under closed.test, which does";
    assert_eq!(found(&format!("{stream}ssls:\n{open}{closed}"), true), [expected]);
    check(&format!("{stream}ssls:\n{open}{closed}"), &[]);
    for ssls in [&open, &closed] {
        assert_eq!(found(&format!("{stream}ssls:\n{ssls}"), true), [""; 0]);
    }
}

#[test]
fn strict_asks_for_verified_upstreams() {
    let text = "routes:\n- {id: r, uri: /r, plugins: {key-auth: {}}, upstream: {scheme: https, nodes: {'10.0.0.1:443': 1}}}\n";
    assert_eq!(found(text, false), [""; 0]);
    let expected = ["warning: routes/r at upstream.tls.verify: the endpoints' certificates are not checked"];
    assert_eq!(found(text, true), expected);
}

#[test]
fn a_plugin_in_two_global_rules_is_warned_of_as_both_run() {
    let rules = |second: &str| {
        format!("global_rules:\n- {{id: a, plugins: {{cors: {{}}}}}}\n- {{id: b, plugins: {{{second}}}}}\n")
    };
    check(
        &rules("cors: {}, ip-restriction: {whitelist: [10.0.0.1]}"),
        &[
            "warning: global_rules/b at plugins.cors: also configured in global_rules/a, and both run: the Admin API accepts only one of them",
        ],
    );
    check(&rules("cors: {_meta: {disable: true}}"), &[]);
}

#[test]
fn an_anonymous_consumer_that_is_not_there_is_warned_of() {
    let text = |name: &str| {
        format!(
            "routes:\n- {{id: a, uri: /a, plugins: {{key-auth: {{anonymous_consumer: {name}}}}}, upstream: {{nodes: {{\"10.0.0.1:80\": 1}}}}}}\nconsumers:\n- {{username: guest}}\n- {{username: ann, plugins: {{key-auth: {{key: k}}}}}}\n"
        )
    };
    check(&text("guest"), &[]);
    let found = found(&text("ghost"), false);
    let expected = "warning: routes/a at plugins.key-auth.anonymous_consumer: consumer ghost does not exist: requests without a key are refused";
    assert!(found.iter().any(|line| line == expected), "{found:?}");
}

#[test]
fn routes_overlap_within_a_scope_only() {
    let listener = "listeners:\n- {id: l, address: \"0.0.0.0:1\", protocol: http}\n";
    let scopes =
        "scopes:\n- {id: s, listeners: [l], hosts: [s.test]}\n- {id: t, listeners: [l], hosts: [t.test]}\n";
    let with = |a: &str, b: &str| {
        let upstream = "upstream: {nodes: {\"10.0.0.1:80\": 1}}";
        format!(
            "{listener}{scopes}routes:\n- {{id: a, uri: /x, {upstream}{a}}}\n- {{id: b, uri: /x, {upstream}{b}}}\n"
        )
    };
    check(&with("", ", scopes: [s]"), &[]);
    check(&with(", scopes: [s]", ", scopes: [t]"), &[]);
    let shadowed = "error: routes/b at uri: in scope s, no request gets to this route: routes/a has the same host, path and priority and a lower id";
    check(&with(", scopes: [s]", ", scopes: [s, t]"), &[shadowed]);
}

#[test]
fn a_listener_without_a_scope_is_reported() {
    let listeners = "listeners:\n- {id: l, address: \"0.0.0.0:1\", protocol: http}\n- {id: m, address: \"0.0.0.0:2\", protocol: http}\n";
    let text = format!("{listeners}scopes:\n- {{id: s, listeners: [l]}}\n");
    check(
        &text,
        &[
            "warning: listeners/m: no scope names this listener: requests get 404, and other connections are closed",
        ],
    );
}
