//! Requests and the resulting upstream requests.

use serde_json::{Value, json};
use yumen_plugin::Step;

use crate::testing::{PluginBench, TestReply};

fn run(settings: Value, request: &str) -> TestReply {
    let bench = PluginBench::new();
    bench.run(&bench.plugin("proxy-rewrite", settings), request)
}

fn check_target(settings: &Value, target: &str, expected: &str) {
    let reply = run(settings.clone(), &format!("GET {target} HTTP/1.1"));
    assert_eq!(reply.upstream_line(), format!("GET {expected}"), "{target} with {settings}");
}

#[test]
fn a_fixed_target_keeps_the_query() {
    let settings = json!({"uri": "/test"});
    check_target(&settings, "/hello", "/test");
    check_target(&settings, "/hello?a=1", "/test?a=1");
    check_target(&json!({"uri": "/test?x=1"}), "/hello?a=1", "/test?x=1&a=1");
    check_target(&json!({"uri": "/te st"}), "/hello", "/te%20st");
}

#[test]
fn the_first_pattern_that_matches_makes_the_target() {
    let settings = json!({"regex_uri": ["^/test/(.*)/(.*)", "/$2?q=$1", "^/t(.*)", "/u$1"]});
    check_target(&settings, "/test/a/b?c=d", "/b?q=a&c=d");
    check_target(&settings, "/tx", "/ux");
    check_target(&settings, "/other?x", "/other?x");
    check_target(&json!({"uri": "/won", "regex_uri": ["a", "b"]}), "/a", "/won");
}

#[test]
fn path_text_cannot_become_a_query() {
    check_target(&json!({"regex_uri": ["^/a/(.*)", "/$1"]}), "/a/b%3Fc", "/b%3Fc");
    check_target(&json!({"host": "my_service:81"}), "/a", "/a");
    check_target(&json!({"host": "a.com"}), "/hello%3F0z=700&a=c%20x", "/hello%3F0z=700&a=c%20x");
    check_target(&json!({"host": "a.com"}), "/a%0d%0aX:%20y", "/a%0d%0aX:%20y");
}

#[test]
fn the_target_as_received_is_used_where_that_is_asked_for() {
    let settings = json!({"use_real_request_uri_unsafe": true});
    check_target(&settings, "//a/../b%2F?c", "//a/../b%2F?c");
    let settings = json!({"use_real_request_uri_unsafe": true, "uri": "/x?y=1"});
    check_target(&settings, "/hello?a=1", "/x?y=1&a=1");
    let settings = json!({"use_real_request_uri_unsafe": true, "regex_uri": ["^/hello/(.*)", "/$1"]});
    check_target(&settings, "/hello/%2E?a", "/%2E?a");
}

#[test]
fn fields_are_added_set_and_removed() {
    let settings = json!({"headers": {"add": {"X-A": "2", "X-M": ["1", 2]}, "set": {"X-B": "new", "X-S": ["3", "4"]},
        "remove": ["X-C"]}});
    let reply = run(settings, "GET / HTTP/1.1\nX-A: 1\nX-B: old\nX-B: older\nX-C: gone");
    for (name, expected) in [
        ("X-A", Some("1|2")),
        ("X-M", Some("1|2")),
        ("X-B", Some("new")),
        ("X-S", Some("3|4")),
        ("X-C", None),
    ] {
        assert_eq!(reply.upstream_field(name).as_deref(), expected, "{name}");
    }
}

#[test]
fn a_flat_map_sets_and_groups_of_the_pattern_are_filled_in() {
    let reply = run(
        json!({"regex_uri": ["^/(.*)/(.*)$", "/x"], "headers": {"X-G": "$1-${2}-$3", "X-N": 1}}),
        "GET /a/b HTTP/1.1\nX-G: old",
    );
    assert_eq!(reply.upstream_field("X-G").as_deref(), Some("a-b-"));
    assert_eq!(reply.upstream_field("X-N").as_deref(), Some("1"));
}

#[test]
fn method_and_host_are_replaced() {
    assert_eq!(run(json!({"method": "POST"}), "GET /a HTTP/1.1").upstream_line(), "POST /a");
    let bench = PluginBench::new();
    let plugin = bench.plugin("proxy-rewrite", json!({"host": "a.com:81"}));
    let mut ex = bench.exchange("GET / HTTP/1.1");
    bench.admit(&[plugin], &mut ex, "GET / HTTP/1.1");
    assert_eq!(ex.upstream.host.as_deref(), Some(&b"a.com:81"[..]));
}

#[test]
fn broken_settings_are_refused() {
    for (settings, part) in [
        (json!({"regex_uri": ["a", "b", "c"]}), "The length of regex_uri should be an even number"),
        (json!({"regex_uri": ["^/test/(.*", "/$1"]}), "invalid regex_uri(^/test/(.*, /$1): "),
        (json!({"regex_uri": ["a", "$name"]}), "invalid regex_uri(a, $name): "),
        (json!({"headers": {"a b": "c"}}), "invalid field character in header"),
    ] {
        let error = PluginBench::new().build("proxy-rewrite", settings).err().expect(part);
        assert!(error.message.starts_with(part), "{}", error.message);
    }
}

#[test]
fn variables_of_the_target_are_filled_in() {
    check_target(&json!({"uri": "/v/$arg_id"}), "/a?id=7", "/v/7?id=7");
    check_target(&json!({"uri": "/test${uri}?q=$arg_id"}), "/a?id=7", "/test/a?q=7&id=7");
    check_target(&json!({"uri": "/$uri/remain"}), "/hello%3F0", "//hello%3F0/remain");
    let reply = run(json!({"headers": {"set": {"X-Ip": "$remote_addr-${arg_a}"}}}), "GET /?a=b HTTP/1.1");
    assert_eq!(reply.upstream_field("X-Ip").as_deref(), Some("127.0.0.1-b"));
}

#[test]
fn a_field_set_to_nothing_is_removed() {
    let request = "GET / HTTP/1.1\nX-A: 1\nX-B: 2\nX-C: 3\nX-C: 4";
    for settings in [
        json!({"headers": {"X-A": "", "X-B": "$arg_none", "X-C": "${http_none}"}}),
        json!({"headers": {"set": {"X-A": "", "X-B": "$arg_none", "X-C": ["", "$1"]}}}),
    ] {
        let reply = run(settings, request);
        for name in ["X-A", "X-B", "X-C"] {
            assert_eq!(reply.upstream_field(name), None, "{name}");
        }
    }
    let reply = run(json!({"headers": {"set": {"X-C": ["", "5", "$arg_none", "6"]}}}), request);
    assert_eq!(reply.upstream_field("X-C").as_deref(), Some("5|6"));
}

#[test]
fn a_hidden_credential_stays_hidden_whatever_is_rewritten() {
    let mut bench = PluginBench::new();
    let jack = bench.add_consumer("jack");
    bench.add_key(&jack, "key-auth", json!({"key": "k1"}), None);
    let auth = bench.plugin("key-auth", json!({"hide_credentials": true}));
    let target = |settings: Value| {
        let request = "GET /r/a?apikey=k1&b=2 HTTP/1.1";
        let mut ex = bench.exchange(request);
        bench.admit(&[auth.clone(), bench.plugin("proxy-rewrite", settings)], &mut ex, request);
        String::from_utf8_lossy(ex.request.upstream_target()).into_owned()
    };
    assert_eq!(target(json!({"uri": "/x"})), "/x?b=2");
    assert_eq!(target(json!({"regex_uri": ["^/r/(.*)", "/$1"]})), "/a?b=2");
    assert_eq!(target(json!({"headers": {"X-A": "v"}})), "/r/a?b=2");
    assert_eq!(target(json!({"uri": "/x?k=$arg_apikey"})), "/x?k=&b=2");
    assert_eq!(target(json!({"uri": "/x/$args"})), "/x/b=2?b=2");
}

#[test]
fn client_text_in_a_query_separates_no_arguments() {
    let settings = json!({"regex_uri": ["^/arg/(.*)", "/api?user=$1&role=guest"]});
    check_target(&settings, "/arg/bob%26role=admin", "/api?user=bob%26role%3Dadmin&role=guest");
    check_target(&settings, "/arg/bob&role=admin", "/api?user=bob%26role%3Dadmin&role=guest");
    check_target(&settings, "/arg/%ED%85%8C", "/api?user=%ED%85%8C&role=guest");
    check_target(&settings, "/arg/a%2Bb+c", "/api?user=a%2Bb%2Bc&role=guest");
    check_target(&settings, "/arg/100%25?x=%41", "/api?user=100%25&role=guest&x=%41");
    check_target(&json!({"uri": "/x?a=$http_a&b=2"}), "/y", "/x?a=&b=2");
    check_target(&json!({"uri": "/x?a=$arg_v&b=2"}), "/y?v=1%26b=3", "/x?a=1%26b%3D3&b=2&v=1%26b=3");
    check_target(&json!({"uri": "/x?from=$uri"}), "/a%20b%2Fc", "/x?from=/a%20b/c");
}

#[test]
fn client_text_in_a_path_keeps_its_encoding() {
    let settings = json!({"regex_uri": ["^/v1/(.*)", "/v2/$1?x=1"]});
    check_target(&settings, "/v1/a%3Fb/c", "/v2/a%3Fb/c?x=1");
    check_target(&settings, "/v1/a%2Fb%252F%2b+%20", "/v2/a%2Fb%252F%2b+%20?x=1");
    check_target(&settings, "/v1/100%25//x", "/v2/100%25//x?x=1");
    check_target(&json!({"uri": "/v2/$arg_p"}), "/y?p=a%3Fb%2523", "/v2/a%3Fb%2523?p=a%3Fb%2523");
    check_target(&json!({"headers": {"X-A": "v"}}), "//a%2Fb%41/..;/c", "//c");
}

#[test]
fn a_target_that_brings_the_query_gets_it_once() {
    check_target(&json!({"uri": "/api$request_uri"}), "/a%20b?x=%41", "/api/a%20b?x=%41");
    check_target(&json!({"uri": "/api${uri}?y=1&$args"}), "/a?x=1", "/api/a?y=1&x=1");
    check_target(&json!({"uri": "/api$uri$is_args$args"}), "/a?x=1", "/api/a?x=1");
    check_target(&json!({"uri": "/api$uri$is_args$args"}), "/a", "/api/a");
}

#[test]
fn client_text_cannot_lead_out_of_its_place_in_a_path() {
    let refused = |settings: Value, target: &str| {
        let reply = run(settings, &format!("GET {target} HTTP/1.1"));
        assert_eq!((reply.status, reply.upstream.is_none()), (400, true), "{target}");
    };
    refused(json!({"uri": "/files/$arg_name"}), "/x?name=../admin");
    refused(json!({"uri": "/files/$arg_name"}), "/x?name=..;/admin");
    refused(json!({"regex_uri": ["^/x(.*)", "/files/$1"]}), "/x../admin");
    let raw = json!({"uri": "/files/$arg_name", "use_real_request_uri_unsafe": true});
    for settings in [json!({"uri": "/files/$arg_name"}), raw] {
        refused(settings.clone(), "/x?name=../admin");
        // Invalid octets do not hide a dot segment.
        refused(settings.clone(), "/x?name=../../vault/x%00");
        refused(settings.clone(), "/x?name=%00/../../vault/x");
        refused(settings, "/x?name=a/..%00");
    }
    refused(json!({"uri": "/files/$args"}), "/x?../../vault/x%00");
    refused(json!({"uri": "/files/$args"}), "/x?a=%zz/../vault");
}

#[test]
fn a_dollar_sign_can_be_written() {
    check_target(&json!({"uri": "/a/${$}uri"}), "/x", "/a/$uri");
    let reply = run(json!({"headers": {"X-A": "pa${$}host-$arg_a"}}), "GET /?a=1 HTTP/1.1");
    assert_eq!(reply.upstream_field("X-A").as_deref(), Some("pa$host-1"));
}

#[test]
fn host_among_the_fields_is_the_host_of_the_upstream_request() {
    let bench = PluginBench::new();
    let check = |target: &str, expected: Result<&str, u16>| {
        let settings =
            json!({"regex_uri": ["^/(.*)", "/$1"], "headers": {"set": {"host": "$1-x.test:9977"}}});
        let plugin = bench.plugin("proxy-rewrite", settings);
        let mut ex = bench.exchange(&format!("GET {target} HTTP/1.1\nHost: a.test"));
        let refused = match plugin.rewrite(&mut ex) {
            Step::Respond(response) => Some(response.status),
            _ => None,
        };
        let host = String::from_utf8_lossy(ex.upstream.host.as_deref().unwrap_or_default()).into_owned();
        let found = refused.map_or(Ok(host), Err);
        assert_eq!(found.as_deref(), expected.as_deref(), "{target}");
    };
    check("/tenant", Ok("tenant-x.test:9977"));
    // Client text must not add anything to the field.
    check("/a%20b", Err(400));
}
