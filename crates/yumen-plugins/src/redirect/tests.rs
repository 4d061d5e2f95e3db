//! Requests and the resulting locations.

use serde_json::{Value, json};

use crate::testing::PluginBench;

fn check_with(bench: &PluginBench, settings: &Value, request: &str, expected: Option<(u16, &str)>) {
    let plugin = bench.plugin("redirect", settings.clone());
    let reply = bench.run(&plugin, request);
    match expected {
        Some((status, location)) => {
            assert_eq!(reply.status, status, "{request}");
            assert_eq!(reply.field("Location").as_deref(), Some(location), "{request}");
        }
        None => assert!(reply.upstream.is_some(), "{request}"),
    }
}

fn check(settings: Value, target: &str, expected: Option<(u16, &str)>) {
    check_with(&PluginBench::new(), &settings, &format!("GET {target} HTTP/1.1"), expected);
}

#[test]
fn a_fixed_target_is_sent_as_written() {
    check(json!({"uri": "/test/add"}), "/hello?q=1", Some((302, "/test/add")));
    check(json!({"uri": "/a b", "ret_code": 301}), "/hello", Some((301, "/a b")));
    check(json!({"uri": "/a b?c d", "encode_uri": true}), "/hello", Some((302, "/a%20b?c d")));
    check(json!({"uri": r"/\$uri/x"}), "/hello", Some((302, r"/\$uri/x")));
}

#[test]
fn the_query_is_added_when_asked_for() {
    let settings = |uri: &str| json!({"uri": uri, "append_query_string": true});
    check(settings("/hello"), "/x?name=json", Some((302, "/hello?name=json")));
    check(settings("/hello?a=1"), "/x?name=json", Some((302, "/hello?a=1&name=json")));
    check(settings("/hello"), "/x", Some((302, "/hello")));
}

#[test]
fn a_pattern_over_the_path_makes_the_target() {
    let settings = json!({"regex_uri": ["^/test/(.*)/(.*)/hello", "http://test.com/${2}/$1"]});
    check(settings.clone(), "/test/alex/cas/hello?x", Some((302, "http://test.com/cas/alex")));
    check(settings, "/other", None);
}

#[test]
fn request_text_cannot_change_the_authority_of_a_target() {
    let by_regex = |regex: &str, by: &str| json!({"regex_uri": [regex, by]});
    let all = || by_regex("^/rd/(.*)", "/$1");
    check(all(), "/rd/%09/evil.com", Some((302, "/%09/evil.com")));
    check(all(), "/rd/%5cevil.com", Some((302, "/%5cevil.com")));
    check(all(), "/rd/%0d%0a/a%20b", Some((302, "/%0d%0a/a%20b")));
    check(all(), "/rd/%2f/evil.com", Some((302, "/evil.com")));
    check(by_regex("^/rd(.*)", "/$1"), "/rd/evil.com", Some((302, "/evil.com")));
    check(by_regex("rd", "/"), "/rd/evil.com", Some((302, "/evil.com")));
    check(by_regex("^/rd/(.*)", "$1"), "/rd/https:evil.com/a:b", Some((302, "https%3Aevil.com/a:b")));
    check(json!({"uri": "/$arg_to"}), "/x?to=/evil.com", Some((302, "/evil.com")));
    check(json!({"uri": "/$arg_to"}), "/x?to=\\evil.com", Some((302, "/%5Cevil.com")));
    check(json!({"uri": "$request_uri"}), "//evil.com/a", Some((302, "/evil.com/a")));
    check(json!({"uri": "/to$uri", "encode_uri": true}), "/%09%5c", Some((302, "/to/%09%5c")));
    let query = json!({"uri": "/a\\b?c d=$http_x", "encode_uri": true});
    let request = "GET / HTTP/1.1\nX: a b\tc";
    check_with(&PluginBench::new(), &query, request, Some((302, "/a%5Cb?c d=a%20b%09c")));
}

#[test]
fn literal_target_text_is_unchanged() {
    let by_regex = |by: &str| json!({"regex_uri": ["^/rd/(.*)", by]});
    check(by_regex("//cdn.test/$1"), "/rd/a", Some((302, "//cdn.test/a")));
    check(by_regex("app:$1"), "/rd/a:b", Some((302, "app:a:b")));
    check(json!({"uri": "$scheme://$host/x"}), "/a", Some((302, "http://test.com/x")));
    check(json!({"uri": "$arg_to"}), "/x?to=https://other.test/", Some((302, "https://other.test/")));
}

#[test]
fn a_request_cannot_change_the_host_that_the_settings_name() {
    let refused = |settings: Value, target: &str| {
        let bench = PluginBench::new();
        let reply = bench.run(&bench.plugin("redirect", settings), &format!("GET {target} HTTP/1.1"));
        assert_eq!((reply.status, reply.field("Location")), (400, None), "{target}");
    };
    let by_regex = |regex: &str, by: &str| json!({"regex_uri": [regex, by]});
    let joined = || by_regex("^/rd8(.*)$", "https://good.example$1");
    refused(joined(), "/rd8@evil.com/");
    refused(joined(), "/rd8.evil.com");
    refused(joined(), "/rd8:80@evil.com");
    refused(by_regex("rd", "https://good.example/"), "//evil.com/rd");
    refused(json!({"uri": "https://good.example$arg_a"}), "/?a=.evil.com");
    refused(json!({"uri": "//good.example$arg_a"}), "/?a=@evil.com");
    refused(json!({"uri": "https://$arg_a"}), "/?a=evil.com");
    refused(json!({"uri": "https://$arg_a.good.example"}), "/?a=evil.com/");
    check(joined(), "/rd8", Some((302, "https://good.example")));
    check(joined(), "/rd8/@evil.com", Some((302, "https://good.example/@evil.com")));
    check(json!({"uri": "https://good.example$request_uri"}), "/a", Some((302, "https://good.example/a")));
    check(json!({"uri": "https://$host:8443$uri"}), "/a", Some((302, "https://test.com:8443/a")));
    check(
        json!({"uri": "https://$arg_a.good.example/x"}),
        "/?a=b-1",
        Some((302, "https://b-1.good.example/x")),
    );
}

#[test]
fn plain_requests_are_sent_to_https() {
    let settings = json!({"http_to_https": true});
    let mut bench = PluginBench::new();
    for (ports, method, expected) in [
        (vec![], "GET", (301, "https://foo.com/hello?a=b")),
        (vec![443], "HEAD", (301, "https://foo.com/hello?a=b")),
        (vec![9443], "POST", (308, "https://foo.com:9443/hello?a=b")),
    ] {
        bench.node.tls_ports = ports;
        let request = format!("{method} /hello?a=b HTTP/1.1\nHost: foo.com:9080");
        check_with(&bench, &settings, &request, Some(expected));
    }
}

#[test]
fn the_way_to_https_keeps_the_path_without_dot_segments_and_the_query() {
    let settings = json!({"http_to_https": true});
    for (target, location) in [
        ("//evil.com/%61/../b%20c?x=%41", "https://foo.com//evil.com/b%20c?x=%41"),
        ("/a%3Fb%0d%0aX:%20y", "https://foo.com/a%3Fb%0d%0aX:%20y"),
    ] {
        let request = format!("GET {target} HTTP/1.1\nHost: foo.com");
        check_with(&PluginBench::new(), &settings, &request, Some((301, location)));
    }
}

#[test]
fn request_without_a_host_is_not_redirected_to_https() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("redirect", json!({"http_to_https": true}));
    let reply = bench.run(&plugin, "GET / HTTP/1.1\nHost:");
    assert_eq!((reply.status, reply.field("Location")), (400, None));
}

/// The location for a client with a key in its query.
fn location_with_key(settings: Value) -> Option<String> {
    let mut bench = PluginBench::new();
    let jack = bench.add_consumer("jack");
    bench.add_key(&jack, "key-auth", json!({"key": "k1"}), None);
    let auth = bench.plugin("key-auth", json!({"hide_credentials": true}));
    let redirect = bench.plugin("redirect", settings);
    let request = "GET /a?apikey=k1&b=2 HTTP/1.1\nHost: foo.com";
    bench.run_all(&[auth, redirect], request).field("Location")
}

#[test]
fn hidden_credential_appears_only_in_the_https_redirect() {
    let check = |settings, expected: &str| assert_eq!(location_with_key(settings).as_deref(), Some(expected));
    check(json!({"uri": "/new", "append_query_string": true}), "/new?b=2");
    check(json!({"uri": "http://x.test$request_uri"}), "http://x.test/a?b=2");
    check(json!({"uri": "http://x.test$uri$is_args$args"}), "http://x.test/a?b=2");
    check(json!({"http_to_https": true}), "https://foo.com/a?apikey=k1&b=2");
}

#[test]
fn requests_that_came_over_https_pass() {
    let settings = json!({"http_to_https": true});
    check_with(&PluginBench::new(), &settings, "GET / HTTP/1.1\nX-Forwarded-Proto: https", None);
    let mut bench = PluginBench::new();
    bench.client.tls = Some(yumen_plugin::TlsInfo::default());
    check_with(&bench, &settings, "GET / HTTP/1.1", None);
    check(json!({"http_to_https": false}), "/", None);
}

#[test]
fn a_query_cannot_be_added_on_the_way_to_https() {
    let settings = json!({"http_to_https": true, "append_query_string": true});
    let error = PluginBench::new().build("redirect", settings).err().expect("refused");
    let expected = "only one of `http_to_https` and `append_query_string` can be configured.";
    assert_eq!(error.message, expected);
}

#[test]
fn variables_of_the_target_are_filled_in() {
    check(json!({"uri": "$uri/test/add"}), "/hello", Some((302, "/hello/test/add")));
    check(json!({"uri": "http://${host}.org$request_uri"}), "/a?b", Some((302, "http://test.com.org/a?b")));
    let encodes = json!({"uri": "http://h$request_uri", "encode_uri": true});
    check(encodes, "//a%20b?c=%20", Some((302, "http://h//a%20b?c=%20")));
    check(json!({"uri": "http://h$request_uri"}), "//a%20b?c=%20", Some((302, "http://h//a%20b?c=%20")));
    check(json!({"uri": "http://$host.org/"}), "/a", Some((302, "http://test.com.org/")));
}

#[test]
fn client_text_is_encoded_for_its_place_in_the_location() {
    let by_regex = |by: &str| json!({"regex_uri": ["^/arg/(.*)", by]});
    let query = || by_regex("/api?user=$1&role=guest");
    check(query(), "/arg/bob%26role=admin", Some((302, "/api?user=bob%26role%3Dadmin&role=guest")));
    check(query(), "/arg/%ED%85%8C%2B100%25", Some((302, "/api?user=%ED%85%8C%2B100%25&role=guest")));
    check(by_regex("/to/$1?x=1"), "/arg/a%3Fb%2Fc%25", Some((302, "/to/a%3Fb%2Fc%25?x=1")));
    check(
        json!({"uri": "/login?next=$request_uri"}),
        "/a%20b?c=1&d",
        Some((302, "/login?next=/a%2520b%3Fc%3D1%26d")),
    );
    check(
        json!({"uri": "/x?a=$arg_a#top", "append_query_string": true}),
        "/y?a=1%262",
        Some((302, "/x?a=1%262&a=1%262#top")),
    );
    check(json!({"uri": "/to$request_uri", "append_query_string": true}), "/y?a=1", Some((302, "/to/y?a=1")));
    check(json!({"uri": "/a${$}uri"}), "/y", Some((302, "/a$uri")));
}
