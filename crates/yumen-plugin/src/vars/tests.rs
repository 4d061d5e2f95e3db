//! All variables of one request, templates, and the three body formats.

use std::borrow::Cow;

use super::{BodyIndexing, IndexingProgress, ProcessVars, Var, VarInputs, VarTemplate, unknown_names};
use crate::test_exchange::with_exchange;
use crate::{Consumer, Exchange, RouteInfo};

const REQUEST: &str = "\
GET /a//b/%63?Name=J%20D&name=second&flag&x.y=1 HTTP/1.1
Host: Shop.Example:8443
Cookie: sid=abc; theme=dark
X-Foo-Bar: one
X-Foo-Bar: two
Cookie: late=1
Content-Type: text/plain
Content-Length: 3
X-Request-Id: r-1";

fn value(name: &str, ex: &Exchange<'_>) -> Option<String> {
    Var::parse(name).get(ex).map(Cow::into_owned).map(|value| String::from_utf8(value).unwrap())
}

fn check(name: &str, expected: impl Into<Option<&'static str>>) {
    let found = with_exchange(true, REQUEST, |ex| value(name, ex));
    assert_eq!(found.as_deref(), expected.into(), "${name}");
}

#[test]
fn variables_of_the_request_have_the_values_nginx_gives() {
    check("uri", "/a/b/c");
    check("document_uri", "/a/b/c");
    check("request_uri", "/a/b/c?Name=J%20D&name=second&flag&x.y=1");
    check("real_request_uri", "/a//b/%63?Name=J%20D&name=second&flag&x.y=1");
    check("args", "Name=J%20D&name=second&flag&x.y=1");
    check("query_string", "Name=J%20D&name=second&flag&x.y=1");
    check("is_args", "?");
    check("host", "shop.example");
    check("http_host", "Shop.Example:8443");
    check("http_x_foo_bar", "one, two");
    check("http_X-Foo-Bar", "one, two");
    check("http_cookie", "sid=abc; theme=dark; late=1");
    check("http_none", None);
    check("arg_name", "second");
    check("arg_Name", "J D");
    check("arg_NAME", None);
    check("arg_flag", "true");
    check("arg_x.y", "1");
    check("raw_arg_flag", None);
    check("raw_arg_NAME", "J%20D");
    check("cookie_theme", "dark");
    check("cookie_late", "1");
    check("cookie_them", None);
    check("request_method", "GET");
    check("server_protocol", "HTTP/1.1");
    check("request", "GET /a//b/%63?Name=J%20D&name=second&flag&x.y=1 HTTP/1.1");
    check("content_length", "3");
    check("content_type", "text/plain");
    check("request_id", "r-1");
    check("no_such", None);
    check("uri_param_id", None);
}

#[test]
fn the_request_uri_has_one_spelling_compared_decoded_and_written_encoded() {
    let check = |target: &str, compared: &str, written: &str| {
        with_exchange(false, &format!("GET {target} HTTP/1.1\nHost: a"), |ex| {
            assert_eq!(value("request_uri", ex).as_deref(), Some(compared), "{target}");
            let mut out = Vec::new();
            VarTemplate::parse("$request_uri").render(ex, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), written, "{target}");
            assert_eq!(value("real_request_uri", ex).as_deref(), Some(target));
        });
    };
    for spelling in ["/a/b?c=%41", "//a/b?c=%41", "/%61/./b?c=%41", "/x/../a//b?c=%41"] {
        check(spelling, "/a/b?c=%41", "/a/b?c=%41");
    }
    check("/a?", "/a", "/a");
    check("/a%3Fb", "/a?b", "/a%3Fb");
    check("/a%0D%0AX:%20y%2541", "/a\r\nX: y%41", "/a%0D%0AX:%20y%2541");
    check("/a\"b", "/a\"b", "/a%22b");
}

#[test]
fn a_value_that_came_by_a_reference_is_no_template() {
    let values = vec!["pa$host$$x".to_owned()];
    crate::vars::with_data_values(values, || {
        with_exchange(false, "GET / HTTP/1.1\nHost: a", |ex| {
            for (text, expected) in [("pa$host$$x", "pa$host$$x"), ("$host", "a"), ("${$}host", "$host")] {
                let mut out = Vec::new();
                VarTemplate::parse(text).render(ex, &mut out);
                assert_eq!(String::from_utf8_lossy(&out), expected, "{text}");
            }
        });
    });
}

#[test]
fn a_request_without_an_id_has_one_of_its_own() {
    with_exchange(false, "GET / HTTP/1.1\nHost: a", |ex| {
        let id = value("request_id", ex).expect("an id");
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert_eq!(value("apisix_request_id", ex), Some(id));
    });
}

#[test]
fn users_and_hops_match_nginx() {
    let check = |fields: &str, name: &str, expected: Option<&str>| {
        let found = with_exchange(false, &format!("GET / HTTP/1.1\nHost: a\n{fields}"), |ex| value(name, ex));
        assert_eq!(found.as_deref(), expected, "{fields}");
    };
    check("Authorization: Basic amFjazpwdw==", "remote_user", Some("jack"));
    check("Authorization: basic  amFjazo=", "remote_user", Some("jack"));
    for none in ["Authorization: Basic amFjaw==", "Authorization: Basic !", "Authorization: Bearer x", "X: y"]
    {
        check(none, "remote_user", None);
    }
    check("X: y", "proxy_add_x_forwarded_for", Some("192.0.2.7"));
    check("X-Forwarded-For: 10.0.0.1", "proxy_add_x_forwarded_for", Some("10.0.0.1, 192.0.2.7"));
    check("X: y", "request_time", Some("0.000"));
    check("X: y", "upstream_uri", Some("/"));
}

#[test]
fn untrusted_forwarding_fields_have_observed_values() {
    let check = |fields: &str, name: &str, expected: Option<&str>| {
        let request = format!("GET / HTTP/1.1\nHost: Shop.Test:81\n{fields}");
        let found = with_exchange(true, &request, |ex| value(name, ex));
        assert_eq!(found.as_deref(), expected, "{name} of {fields}");
    };
    for (name, seen) in [
        ("http_x_forwarded_proto", "https"),
        ("http_X-Forwarded-Proto", "https"),
        ("http_x_forwarded_host", "shop.test"),
        ("http_x_forwarded_port", "8443"),
    ] {
        check("X: y", name, Some(seen));
    }
    check("X-Forwarded-Proto: http", "http_x_forwarded_proto", Some("http"));
    check("X-Forwarded-Host: a\nX-Forwarded-Host: b", "http_x_forwarded_host", Some("a, b"));
    check("X-Forwarded-Port: 1", "http_x_forwarded_port", Some("1"));
    check("X: y", "http_x_forwarded_for", None);
    check("X: y", "http_forwarded", None);
}

#[test]
fn arguments_are_the_first_of_their_name_decoded() {
    let check = |query: &str, expected: Option<&str>| {
        let found =
            with_exchange(false, &format!("GET /?{query} HTTP/1.1\nHost: a"), |ex| value("arg_a b", ex));
        assert_eq!(found.as_deref(), expected, "{query}");
    };
    check("a+b=1%2B2+3&a%20b=4", Some("1+2 3"));
    check("a%20b=4&a+b", Some("4"));
    check("x&a+b&a+b=1", Some("true"));
    check("a+b=", Some(""));
    check("a+b=c=d", Some("c=d"));
    check("a+b=%zz%4", Some("%zz%4"));
    check("A+b=1&aab=1&a+bc=1&=1", None);
    with_exchange(false, "GET /?plain=v%41&a=plain HTTP/1.1\nHost: a", |ex| {
        assert!(matches!(Var::parse("arg_a").get(ex), Some(Cow::Borrowed(b"plain"))));
    });
}

#[test]
fn the_request_length_counts_head_and_body() {
    let bytes = REQUEST.replace('\n', "\r\n").len() + 4 + 3;
    let found = with_exchange(true, REQUEST, |ex| value("request_length", ex));
    assert_eq!(found, Some(bytes.to_string()));
}

#[test]
fn variables_of_the_connection() {
    check("remote_addr", "192.0.2.7");
    check("realip_remote_addr", "192.0.2.7");
    check("remote_port", "4711");
    check("server_addr", "198.51.100.1");
    check("server_port", "8443");
    check("scheme", "https");
    check("https", "on");
    check("connection", "12");
    check("ssl_server_name", "shop.example");
    check("ssl_protocol", "TLSv1.3");
    check("ssl_cipher", "TLS_AES_128_GCM_SHA256");
    with_exchange(false, "GET / HTTP/1.0", |ex| {
        assert_eq!(value("https", ex).as_deref(), Some(""));
        assert_eq!(value("scheme", ex).as_deref(), Some("http"));
        assert_eq!(value("ssl_protocol", ex), None);
        assert_eq!(value("args", ex), None);
        assert_eq!(value("is_args", ex).as_deref(), Some(""));
        assert_eq!(value("host", ex), None);
        ex.client.ip = "10.0.0.1".parse().unwrap();
        assert_eq!(value("remote_addr", ex).as_deref(), Some("10.0.0.1"));
        assert_eq!(value("realip_remote_addr", ex).as_deref(), Some("192.0.2.7"));
        assert_eq!(Var::parse("binary_remote_addr").get(ex).unwrap().as_ref(), [10, 0, 0, 1]);
    });
}

#[test]
fn variables_of_the_client_certificate() {
    check("ssl_curve", "X25519MLKEM768");
    check("ssl_session_reused", ".");
    check("ssl_client_verify", "SUCCESS");
    check("ssl_client_s_dn", "CN=robot,O=Shop");
    check("ssl_client_i_dn", "CN=Shop Robots");
    check("ssl_client_serial", "0A1B");
    check("ssl_client_fingerprint", "c0ffee");
    check("ssl_client_v_start", "Jan  1 00:00:00 1970 GMT");
    check("ssl_client_v_end", "Nov 22 00:00:00 2024 GMT");
    // Less than two days: the test requests arrive on the 20th at noon.
    check("ssl_client_v_remain", "1");
    check(
        "ssl_client_raw_cert",
        "-----BEGIN CERTIFICATE-----\nbm90IHJlYWxseSBERVI=\n-----END CERTIFICATE-----\n",
    );
    check(
        "ssl_client_cert",
        "-----BEGIN CERTIFICATE-----\n\tbm90IHJlYWxseSBERVI=\n\t-----END CERTIFICATE-----",
    );
    let escaped = concat!(
        "-----BEGIN%20CERTIFICATE-----%0Abm90IHJlYWxseSBERVI%3D%0A",
        "-----END%20CERTIFICATE-----%0A"
    );
    check("ssl_client_escaped_cert", escaped);
    with_exchange(false, "GET / HTTP/1.0", |ex| {
        for name in ["ssl_client_verify", "ssl_client_s_dn", "ssl_client_raw_cert", "ssl_session_reused"] {
            assert_eq!(value(name, ex), None, "{name}");
        }
    });
}

#[test]
fn client_certificate_verdict_matches_nginx() {
    let check = |verdict: crate::ClientCertVerdict, expected: &str| {
        let mut out = Vec::new();
        verdict.append(&mut out);
        assert_eq!(out, expected.as_bytes());
    };
    check(crate::ClientCertVerdict::Absent, "NONE");
    check(crate::ClientCertVerdict::Verified, "SUCCESS");
    check(crate::ClientCertVerdict::Failed("certificate expired".into()), "FAILED:certificate expired");
}

#[test]
fn times_are_those_of_the_exchange() {
    check("msec", "1732105994.042");
    check("time_iso8601", "2024-11-20T12:33:14+00:00");
    check("time_local", "20/Nov/2024:12:33:14 +0000");
}

#[test]
fn dates_hold_on_leap_days_and_at_turns_of_years() {
    let date = |unix_s| {
        let mut out = Vec::new();
        super::date::iso8601(&mut out, unix_s);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(date(0), "1970-01-01T00:00:00+00:00");
    assert_eq!(date(951_782_400), "2000-02-29T00:00:00+00:00");
    assert_eq!(date(951_868_799), "2000-02-29T23:59:59+00:00");
    assert_eq!(date(1_704_067_199), "2023-12-31T23:59:59+00:00");
    assert_eq!(date(1_709_164_800), "2024-02-29T00:00:00+00:00");
    assert_eq!(date(4_107_542_400), "2100-03-01T00:00:00+00:00");
}

#[test]
fn variables_of_the_configuration_are_absent_until_known() {
    let consumer = Consumer {
        username: "jack".into(),
        group_id: Some("gold".into()),
        custom_id: None,
        labels: Box::default(),
        written: None,
        plugins: Box::default(),
        switched_off: Box::default(),
    };
    let uris = ["/users/:id".into()];
    let route = RouteInfo { id: "1".into(), name: "cart".into(), ..RouteInfo::default() };
    let names = ["consumer_name", "consumer_group_id", "route_id", "route_name", "service_id", "status"];
    let unknown = with_exchange(true, REQUEST, |ex| names.map(|name| value(name, ex)));
    assert_eq!(unknown, [const { None }; 6]);
    let mut head = crate::RequestHead::default();
    let text = b"GET /users/42 HTTP/1.1\r\nHost: a\r\n\r\n";
    yumen_http::parse::request(text, 0, &Default::default(), &mut head).unwrap();
    with_exchange(true, REQUEST, |outer| {
        let mut ex = Exchange::new(head, outer.client.connection, outer.now, outer.host, outer.consumers);
        ex.consumer = Some(&consumer);
        ex.route.info = Some(&route);
        (ex.route.uris, ex.route.uri_index) = (&uris, 0);
        ex.route.path_params.push(("id", 7..9));
        ex.endpoint.address = Some("10.0.0.9:80".parse().unwrap());
        ex.endpoint.host = "cart.internal";
        ex.response.status = 201;
        ex.endpoint.status = 503;
        ex.response.fields.add("X-Cache", b"HIT");
        let expected = [
            ("consumer_name", Some("jack")),
            ("consumer_group_id", Some("gold")),
            ("route_id", Some("1")),
            ("route_name", Some("cart")),
            ("service_id", None),
            ("service_name", None),
            ("matched_uri", Some("/users/:id")),
            ("matched_host", None),
            ("uri_param_id", Some("42")),
            ("upstream_addr", Some("10.0.0.9:80")),
            ("balancer_ip", Some("10.0.0.9")),
            ("balancer_port", Some("80")),
            ("upstream_unresolved_host", Some("cart.internal")),
            ("status", Some("201")),
            ("upstream_status", Some("503")),
            ("sent_http_x_cache", Some("HIT")),
        ];
        for (name, expected) in expected {
            assert_eq!(value(name, &ex).as_deref(), expected, "${name}");
        }
    });
}

fn check_template(text: &str, expected: &str, resolved: usize) {
    let template = VarTemplate::parse(text);
    let mut out = b">".to_vec();
    let found = with_exchange(true, REQUEST, |ex| template.render(ex, &mut out));
    assert_eq!(String::from_utf8(out).unwrap(), format!(">{expected}"), "{text}");
    assert_eq!(found, resolved, "{text}");
}

#[test]
fn templates_put_values_in_place() {
    check_template("plain", "plain", 0);
    check_template("", "", 0);
    check_template("$host", "shop.example", 1);
    check_template("${host}", "shop.example", 1);
    check_template("${ host }x", "shop.examplex", 1);
    check_template("$scheme://$host$uri!", "https://shop.example/a/b/c!", 3);
    check_template("a${remote_addr}:$remote_port-z", "a192.0.2.7:4711-z", 2);
    check_template("$host.internal", "shop.example.internal", 1);
    check_template("$none|${none}", "|", 0);
    check_template("${none ?? anon}", "anon", 1);
    check_template("${host ?? anon}", "shop.example", 1);
    check_template("$$host", "$shop.example", 1);
    check_template("cost: 5$", "cost: 5$", 0);
    check_template("$ {host} ${} ${open", "$ {host} ${} ${open", 0);
    check_template(r"\$host $host", r"\$host shop.example", 1);
    check_template("é$hosté", "éshop.exampleé", 1);
    check_template("$post_arg.a.b.", ".", 0);
}

#[test]
fn templates_know_what_they_depend_on() {
    assert!(VarTemplate::parse("a \\$b $").is_constant());
    assert!(VarTemplate::parse("a ${ $ ?? b }").is_constant());
    assert!(!VarTemplate::parse("a $b").is_constant());
    assert!(VarTemplate::parse("x ${post_arg.a[0].b}").needs_body());
    assert!(!VarTemplate::parse("x $arg_a").needs_body());
}

fn check_body(content_type: &str, body: &str, name: &str, expected: Option<&str>) {
    let request = format!("POST / HTTP/1.1\nHost: a\nContent-Type: {content_type}\n\n");
    with_exchange(false, &request, |ex| {
        assert_eq!(value(name, ex), None, "without a body");
        ex.body.buffered = Some(body.as_bytes().to_vec().into());
        assert_eq!(value(name, ex).as_deref(), expected, "{name} in {body}");
    });
}

#[test]
fn forms_are_decoded() {
    let form = "application/x-www-form-urlencoded; charset=utf-8";
    check_body(form, "a=1+2%2B3&b&a=4", "post_arg_a", Some("1 2+3"));
    check_body(form, "a=1&b&a=4", "post_arg_b", Some(""));
    check_body(form, "a=1&b&a=4", "post_arg.a", Some("1"));
    check_body(form, "a=1&b&a=4", "post_arg_c", None);
    check_body("text/plain", "a=1", "post_arg_a", None);
    check_body(form, "%6+=0&%61%20b=1&%zz=2&c%=3", "post_arg_a b", Some("1"));
    check_body(form, "%61%20b=1&%zz=2&c%=3", "post_arg_%zz", Some("2"));
    check_body(form, "%61%20b=1&%zz=2&c%=3", "post_arg_c%", Some("3"));
}

#[test]
fn json_places_are_found_by_their_path() {
    let json = "application/json";
    let body = r#"{"a":{"b":"x","n":1.5,"t":true,"z":null,"o":{"k":1}},"l":[{"v":"first"},"s"]}"#;
    check_body(json, body, "post_arg.a.b", Some("x"));
    check_body(json, body, "post_arg.a.n", Some("1.5"));
    check_body(json, body, "post_arg.a.t", Some("true"));
    check_body(json, body, "post_arg.a.z", None);
    check_body(json, body, "post_arg.a.o", Some(r#"{"k":1}"#));
    check_body(json, body, "post_arg.l[0].v", Some("first"));
    check_body(json, body, "post_arg.l.1", Some("s"));
    check_body(json, body, "post_arg.l.9", None);
    check_body(json, body, "post_arg.l[*].v", Some("first"));
    check_body(json, body, "post_arg.a.*.k", Some("1"));
    check_body(json, body, "post_arg.l[*].none", None);
    check_body(json, "{", "post_arg.a", None);
    check_body("application/vnd.x+json", body, "post_arg.a.b", Some("x"));
}

#[test]
fn doubled_and_escaped_names_are_read_as_serde_json_reads_them() {
    let json = "application/json";
    check_body(json, r#"{"a":1,"a":{"b":2}}"#, "post_arg.a.b", Some("2"));
    check_body(json, r#"{"a":{"b":1},"a":{"c":2}}"#, "post_arg.a.b", None);
    check_body(json, r#"{"\u0061":"x"}"#, "post_arg.a", Some("x"));
    check_body(json, r#"{"a":"x","\u0061":"y"}"#, "post_arg.a", Some("y"));
    check_body(json, r#"{"b":1,"a":2,"b":3}"#, "post_arg.*", Some("3,2"));
    check_body(json, r#"[{},{"a":1}]"#, "post_arg.0.a", None);
    check_body(json, r#"[[],[{"a":[5,{}]}]]"#, "post_arg.1[0].a[0]", Some("5"));
    check_body(json, r#"{"a":1} x"#, "post_arg.a", None);
}

fn index(content_type: &str, body: &str) -> (IndexingProgress, usize) {
    let request = format!("POST / HTTP/1.1\nHost: a\nContent-Type: {content_type}\n\n{body}");
    with_exchange(false, &request, |ex| {
        let (mut indexing, mut turns) = (BodyIndexing::default(), 1);
        loop {
            match indexing.turn(ex) {
                IndexingProgress::More => turns += 1,
                progress => return (progress, turns),
            }
        }
    })
}

#[test]
fn bodies_are_looked_through_in_turns_and_within_bounds() {
    use IndexingProgress::{Done, TooComplex};
    let (json, form) = ("application/json", "application/x-www-form-urlencoded");
    let ones = format!(r#"{{"b":[{}1]}}"#, "1,".repeat(500_000));
    assert_eq!(index(json, &ones), (Done, 8));
    let members = |count: usize| format!("{{{}\"b\":1}}", "\"a\":1,".repeat(count - 1));
    assert_eq!(index(json, &members(128 << 10)).0, Done);
    assert_eq!(index(json, &members((128 << 10) + 1)).0, TooComplex);
    assert_eq!(index(json, &"[".repeat(1000)).0, TooComplex);
    assert_eq!(index(json, "{").0, Done);
    assert_eq!(index(form, &"a&".repeat(10_000)).0, Done);
    assert_eq!(index(form, &"a&".repeat(10_001)).0, TooComplex);
    let part = "--B\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n";
    let parts = |count: usize| part.repeat(count) + "--B--";
    assert_eq!(index("multipart/form-data; boundary=B", &parts(1000)).0, Done);
    assert_eq!(index("multipart/form-data; boundary=B", &parts(1001)).0, TooComplex);
    assert_eq!(index("text/plain", &ones).0, Done);
}

#[test]
fn a_value_of_too_many_leaves_the_exchange_undecided() {
    let ones = format!(r#"{{"a":1,"b":[{}1]}}"#, "1,".repeat(20_000));
    let request = format!("POST / HTTP/1.1\nHost: a\nContent-Type: application/json\n\n{ones}");
    with_exchange(false, &request, |ex| {
        assert_eq!(value("post_arg.a", ex).as_deref(), Some("1"));
        assert_eq!(value("post_arg.b.20000", ex).as_deref(), Some("1"));
        assert!(!ex.is_undecided());
        assert_eq!(value("post_arg.b", ex), None);
        assert!(ex.is_undecided());
    });
}

#[test]
fn multipart_fields_are_found_by_their_name() {
    let body = "preamble\r\n--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n--B\r\n\
        content-disposition: form-data; name=\"f\"; filename=\"x\"\r\nContent-Type: text/plain\r\n\r\n\
        two\r\nlines\r\n--B--\r\n";
    let kind = "multipart/form-data; boundary=\"B\"";
    check_body(kind, body, "post_arg_a", Some("one"));
    check_body(kind, body, "post_arg.f", Some("two\r\nlines"));
    check_body(kind, body, "post_arg_g", None);
    check_body(kind, &body["preamble\r\n".len()..], "post_arg_a", Some("one"));
    check_body("multipart/form-data", body, "post_arg_a", None);
    check_body(kind, "--B\r\n\r\nno end", "post_arg_a", None);
    check_body(kind, "--B", "post_arg_a", None);
}

/// Checks that a value in the body is neither present nor absent.
#[track_caller]
fn check_unreadable(content_type: &str, body: &str, name: &str) {
    let request = format!("POST / HTTP/1.1\nHost: a\nContent-Type: {content_type}\n\n");
    with_exchange(false, &request, |ex| {
        ex.body.buffered = Some(body.as_bytes().to_vec().into());
        assert_eq!(value(name, ex), None);
        assert!(
            ex.indecision() == Some(crate::IndecisionCause::UnreadableBody),
            "{content_type}: {name} in {body}"
        );
    });
}

#[test]
fn a_value_that_readers_disagree_about_is_not_absent() {
    let json = "application/json";
    for (body, name) in [
        (r#"{"roles":["admin","\ud800"]}"#, "post_arg.roles"),
        (r#"{"roles":["admin",1e999]}"#, "post_arg.roles"),
        (r#"{"user":{"role":"admin","x":1e999}}"#, "post_arg.user"),
        (r#"{"n":1e999}"#, "post_arg.n"),
        (r#"{"a":{"\ud800":"admin","\ud801":"u"}}"#, "post_arg.a.*"),
        (r#"{"role":"admin","x":NaN}"#, "post_arg.role"),
        ("\u{feff}{\"role\":\"admin\"}", "post_arg.role"),
    ] {
        check_unreadable(json, body, name);
    }
    // The member beside it is not parsed.
    check_body(json, r#"{"a":"x","b":1e999,"\ud800":1}"#, "post_arg.a", Some("x"));
}

#[test]
fn a_body_of_two_types_is_not_read() {
    check_unreadable("text/plain\nContent-Type: application/json", r#"{"a":1}"#, "post_arg.a");
    check_unreadable("text/plain, application/json", r#"{"a":1}"#, "post_arg.a");
    check_unreadable("text/plain, application/json", r#"{"query":"{a}"}"#, "graphql_name");
    check_body("application/json; a=\"b,c\"", r#"{"a":1}"#, "post_arg.a", Some("1"));
}

#[test]
fn names_of_large_objects_are_found_by_their_hash() {
    let members: String = (0..1000).map(|n| format!(r#""f{n}":{n},"#)).collect();
    let body = format!(r#"{{"a":"x",{members}"\u0061":"y","\ud800":0,"f7":"z"}}"#);
    for (name, expected) in
        [("a", Some("y")), ("f7", Some("z")), ("f8", Some("8")), ("f999", Some("999")), ("g", None)]
    {
        check_body("application/json", &body, &format!("post_arg.{name}"), expected);
    }
}

#[test]
fn multipart_forms_are_read_strictly() {
    let kind = "multipart/form-data; boundary=B";
    let form = |head: &str| format!("--B\r\n{head}\r\n\r\nadmin\r\n--B--\r\n");
    let field = "Content-Disposition: form-data; name=\"role\"";
    for (kind, body) in [
        (kind, form("Content-Disposition: form-data; filename=\"; name=user; x\"; name=\"role\"")),
        (kind, form("Content-Type: text/plain\r\ncontent-disposition: form-data; name=role")),
        (kind, form(field).replace("--B", "--B  ").replace("--B  --", "--B--")),
        ("multipart/form-data; x=\"; boundary=Z; \"; boundary=B", form(field)),
        ("multipart/form-data; boundary=\"a B\"", form(field).replace("--B", "--a B")),
    ] {
        check_body(kind, &body, "post_arg.role", Some("admin"));
    }
    let long = "e".repeat(1500);
    let body = form(field).replace("--B", "--e").replace("admin", &long);
    check_body("multipart/form-data; boundary=e", &body, "post_arg.role", Some(&long));
    let whole = form(field);
    for body in [
        form("Content-Disposition: form-data;\r\n name=\"role\""),
        form("Content-Disposition: form-data; name*=UTF-8''role"),
        form("Content-Disposition: form-data; filename=\"\\\"; name=\"user\"; x=\"\"; name=\"role\""),
        form("Content-Disposition: form-data; name=\"r\\ole\""),
        form("Content-Disposition: form-data; name=user; name=role"),
        form("Content-Disposition: form-data; name=user\r\nContent-Disposition: form-data; name=role"),
        form("Content-Disposition: form-data"),
        form("Content-Transfer-Encoding: base64\r\nContent-Disposition: form-data; name=role"),
        form("Content-Disposition : form-data; name=role"),
        form("X: y"),
        whole.replace("--B--\r\n", ""),
        whole.replace("\r\n", "\n"),
        whole.replace("admin", "x\n--B\r\n"),
        whole.replace("admin", "x\r\n--Bx"),
        whole.clone() + &whole,
        "text".into(),
    ] {
        check_unreadable(kind, &body, "post_arg.role");
    }
    for kind in [
        "multipart/form-data",
        "multipart/form-data; boundary=A; boundary=B",
        "multipart/form-data; boundary=\"\\B\"",
        "multipart/form-data; boundary=\"B",
        "multipart/form-data; boundary=\"\"",
    ] {
        check_unreadable(kind, &whole, "post_arg.role");
    }
}

#[test]
fn graphql_operations_are_understood_in_three_carriers() {
    let document = "mutation Buy($n: Int!) { cart(n: $n) { id } alias: pay ...F } fragment F on M { x }";
    let check = |content_type: &str, body: &str, expected: [Option<&str>; 3]| {
        let names = ["graphql_operation", "graphql_name", "graphql_root_fields"];
        for (name, expected) in names.into_iter().zip(expected) {
            check_body(content_type, body, name, expected);
        }
    };
    let buy = [Some("mutation"), Some("Buy"), Some("cart,pay")];
    check("application/graphql", document, buy);
    check("application/json", &serde_json::json!({ "query": document }).to_string(), buy);
    check("application/graphql", "{ shop }", [Some("query"), Some(""), Some("shop")]);
    check("application/graphql", "subscription S { s }", [Some("subscription"), Some("S"), Some("s")]);
    check("application/graphql", "query {", [None; 3]);
    check("application/json", "{}", [None; 3]);
    let nested = [
        ("", "{a"),
        ("{a(b:", "["),
        ("{a(b:", "{c:"),
        ("query($a:", "["),
        ("{...@a(b:", "["),
        ("", "fragment F on A{"),
    ];
    for (start, open) in nested {
        check("application/graphql", &(start.to_owned() + &open.repeat(10_000)), [None; 3]);
    }
    let get = "GET /?query=query+Q%7Bshop%7D HTTP/1.1\nHost: a";
    assert_eq!(with_exchange(false, get, |ex| value("graphql_name", ex)).as_deref(), Some("Q"));
}

#[test]
fn a_setting_that_names_a_variable_of_the_body_is_known_as_such() {
    for (text, expected) in [
        ("post_arg_a", true),
        ("post_arg.a.b", true),
        ("graphql_name", true),
        ("$post_arg_a", true),
        ("$remote_addr and ${ post_arg_a ?? none }", true),
        ("the post_arg_a", false),
        ("\\$post_arg_a", false),
        ("$graphql_nothing", false),
        ("arg_a", false),
        ("", false),
    ] {
        assert_eq!(VarInputs::of(text).body, expected, "{text}");
    }
}

#[test]
fn variables_of_a_setting_are_known_at_compile_time() {
    let check = |text, body, answer| assert_eq!(VarInputs::of(text), VarInputs { body, answer }, "{text}");
    check("post_arg.a", true, false);
    check("is $graphql_name", true, false);
    check("sent_http_location", false, true);
    check("${sent_http_x}/$post_arg_a", true, true);
    check("post_args", false, false);
    check("$http_x", false, false);
}

#[test]
fn process_variables_are_available_everywhere() {
    ProcessVars { hostname: "gw-1".into(), pid: 4711 }.set_for_process();
    check("hostname", "gw-1");
    check("pid", "4711");
}

#[test]
fn nothing_was_sent_until_the_exchange_is_over() {
    check("bytes_sent", "0");
    check("body_bytes_sent", "0");
    with_exchange(true, REQUEST, |ex| {
        ex.record_outcome(&crate::ExchangeOutcome {
            sent_bytes: 300,
            sent_head_bytes: 283,
            ..Default::default()
        });
        assert_eq!(value("bytes_sent", ex).as_deref(), Some("300"));
        assert_eq!(value("body_bytes_sent", ex).as_deref(), Some("17"));
    });
}

#[test]
fn only_unknown_variables_are_reported() {
    let (_, names) = unknown_names(|| {
        VarTemplate::parse(
            "$hostname $nosuch_var ${other ?? x} $arg_a $http_b $cookie_c $post_arg.d $uri_param_e",
        );
        VarTemplate::parse("$sent_http_f $graphql_name \\$escaped $1x $");
        Var::parse("resp_body");
        VarInputs::of("a text on post_args");
    });
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    assert_eq!(names, ["1x", "nosuch_var", "other", "resp_body"]);
    // Outside of `unknown_names` nothing is recorded.
    Var::parse("late");
    assert!(unknown_names(|| Var::parse("host")).1.is_empty());
}
