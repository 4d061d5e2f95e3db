use super::*;

fn read(format: &str, line: &str) -> Option<LoggedRequest> {
    LoggedRequest::of(&LogLineFormat::parse(format).read(line)?)
}

#[test]
fn a_line_of_ingress_nginx_has_its_upstream() {
    let line = "10.0.0.7 - - [21/Nov/2026:10:00:00 +0000] \"GET /cart?x=1 HTTP/2.0\" 200 612 \"https://e.com/\" \"curl/8 (x)\" \
                86 0.003 [shop-cart-80] [shop-cart-next-80] 10.1.0.4:8080, 10.1.0.5:8080 0, 612 0.001, 0.002 502, 200 5f1e";
    let request = read(INGRESS_NGINX_FORMAT, line).expect("a request");
    assert_eq!((request.method.as_str(), request.target.as_str(), request.status), ("GET", "/cart?x=1", 200));
    assert_eq!(request.upstreams, ["shop-cart-80", "shop-cart-next-80"]);
    assert_eq!(request.was_proxied, Some(true));
    assert_eq!(request.client.as_deref(), Some("10.0.0.7"));
    assert_eq!(request.user_agent.as_deref(), Some("curl/8 (x)"));
    assert_eq!(request.host, None);
}

#[test]
fn a_line_without_an_upstream_was_answered_by_nginx() {
    let line = "10.0.0.7 - - [21/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 308 164 \"-\" \"-\" 70 0.000 [shop-cart-80] [] - - - \
                - 9a";
    let request = read(INGRESS_NGINX_FORMAT, line).expect("a request");
    assert_eq!((request.status, request.was_proxied, request.user_agent), (308, Some(false), None));
}

#[test]
fn other_formats_are_read_by_their_variables() {
    let combined = "::1 - bob [21/Nov/2026:10:00:00 +0000] \"POST /a HTTP/1.1\" 201 5 \"-\" \"a \\\" b\"";
    let request = read(COMBINED_FORMAT, combined).expect("a request");
    assert_eq!((request.method.as_str(), request.status, request.upstreams.len()), ("POST", 201, 0));
    assert_eq!(request.user_agent.as_deref(), Some("a \\\" b"));
    let format = r#"{"m":"$request_method","h":"$host","u":"$request_uri","s":$status,"p":"$scheme","l":"${sent_http_location}"}"#;
    let line = r#"{"m":"GET","h":"e.com","u":"/x","s":301,"p":"http","l":"https://e.com/x"}"#;
    let request = read(format, line).expect("a request");
    assert_eq!(request.host.as_deref(), Some("e.com"));
    assert_eq!(request.scheme.as_deref(), Some("http"));
    assert_eq!(request.location.as_deref(), Some("https://e.com/x"));
    let absolute = "a - - [t] \"GET http://e.com HTTP/1.1\" 200 5 \"-\" \"-\"";
    let request = read(COMBINED_FORMAT, absolute).expect("a request");
    assert_eq!((request.host.as_deref(), request.target.as_str()), (Some("e.com"), "/"));
}

#[test]
fn lines_of_another_format_are_not_read() {
    for line in [
        "",
        "I1121 starting",
        "a - - [t] \"\\x16\\x03\" 400 0 \"-\" \"-\"",
        "a - - [t] \"GET / HTTP/1.1\" x 0 \"-\" \"-\"",
    ] {
        assert_eq!(read(COMBINED_FORMAT, line), None, "{line}");
    }
    assert_eq!(read("$status$host", "200e"), None);
}
