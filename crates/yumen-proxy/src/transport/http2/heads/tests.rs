use super::*;

fn read(request: &Request<()>, has_ended: bool) -> Result<RequestHead, HeadError> {
    let mut head = RequestHead::default();
    read_request(request, has_ended, &HeadLimits::default(), &mut head).map(|()| head)
}

fn h2_request(method: &str, uri: &str, fields: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

fn lines(head: &RequestHead) -> String {
    let mut text = Vec::new();
    head.fields.write(&mut text, |_| true);
    String::from_utf8(text).unwrap()
}

#[test]
fn a_request_is_read_as_if_it_had_come_over_http1() {
    let request =
        h2_request("GET", "https://A.test:8443/a/../b?q", &[("x-a", "1"), ("x-a", "2"), ("te", "trailers")]);
    let head = read(&request, true).unwrap();
    assert_eq!((head.host(), head.path(), head.target()), (&b"a.test"[..], &b"/b"[..], &b"/a/../b?q"[..]));
    assert_eq!((head.version, head.framing), (HttpVersion::Http2, Framing::None));
    assert_eq!(lines(&head), "Host: A.test:8443\r\nx-a: 1\r\nx-a: 2\r\nte: trailers\r\n");
}

#[test]
fn stream_end_ends_the_body() {
    let check = |method: &str, fields: &[(&str, &str)], has_ended: bool, expected: Framing| {
        let head = read(&h2_request(method, "http://a/", fields), has_ended).unwrap();
        assert_eq!(head.framing, expected, "{method} {fields:?} {has_ended}");
    };
    check("POST", &[], true, Framing::None);
    check("POST", &[], false, Framing::Chunked);
    check("GET", &[], false, Framing::Chunked);
    check("POST", &[("content-length", "5")], false, Framing::Length(5));
    check("POST", &[("content-length", "0")], true, Framing::None);
    check("POST", &[("content-length", "0")], false, Framing::None);
}

#[test]
fn cookies_are_joined_again() {
    let request = h2_request("GET", "http://a/", &[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")]);
    let head = read(&request, true).unwrap();
    assert_eq!(head.cookie(b"b"), Some(&b"2"[..]));
    assert_eq!(head.fields.all("cookie").count(), 1);
}

#[test]
fn a_host_may_repeat_the_authority_and_not_contradict_it() {
    assert!(read(&h2_request("GET", "http://a.test/", &[("host", "A.test")]), true).is_ok());
    let head = read(&h2_request("GET", "/", &[("host", "b.test")]), true).unwrap();
    assert_eq!(head.host(), b"b.test");
    let refused: &[(&str, &[(&str, &str)])] = &[
        ("http://a.test/", &[("host", "b.test")]),
        ("http://a.test/", &[("host", "a.test"), ("host", "a.test")]),
        ("/", &[]),
        ("http://user@a.test/", &[]),
    ];
    for (uri, fields) in refused {
        assert!(matches!(read(&h2_request("GET", uri, fields), true), Err(HeadError::Malformed(_))), "{uri}");
    }
}

#[test]
fn connect_opens_websockets_and_nothing_else() {
    let connect = read(&h2_request("CONNECT", "a.test:80", &[]), true).unwrap();
    assert_eq!(connect.method(), yumen_http::Method::Connect);
    let mut request = h2_request("CONNECT", "http://a.test/chat", &[("sec-websocket-version", "13")]);
    request.extensions_mut().insert(Protocol::from_static("websocket"));
    let head = read(&request, false).unwrap();
    assert_eq!((head.method(), head.path()), (yumen_http::Method::Get, &b"/chat"[..]));
    assert!(head.options.upgrade && head.framing == Framing::None);
    assert_eq!(head.fields.get("upgrade"), Some(&b"websocket"[..]));
    assert!(head.fields.has("sec-websocket-key"));
    request.extensions_mut().insert(Protocol::from_static("other"));
    assert_eq!(read(&request, false).unwrap_err(), HeadError::UnknownCoding);
}

#[test]
fn a_websocket_has_no_length() {
    for length in ["0", "43"] {
        let fields = [("sec-websocket-version", "13"), ("content-length", length)];
        let mut request = h2_request("CONNECT", "https://a/ws", &fields);
        request.extensions_mut().insert(Protocol::from_static("websocket"));
        assert!(matches!(read(&request, false), Err(HeadError::Malformed(_))), "{length}");
    }
}

#[test]
fn all_that_is_said_of_trailers_is_looked_at() {
    let check = |values: &[&'static str], is_fine: bool| {
        let mut fields = HeaderMap::new();
        for value in values {
            fields.append("te", HeaderValue::from_static(value));
        }
        assert_eq!(refuse_connection_fields(&fields).is_ok(), is_fine, "{values:?}");
    };
    check(&["trailers"], true);
    check(&["trailers", "gzip"], false);
}

#[test]
fn a_request_leaves_without_what_belongs_to_a_connection() {
    let text = b"POST /a?b HTTP/1.1\r\nHost: a.test\r\nX-Case: v\r\nConnection: x\r\nKeep-Alive: 1\r\n\
        Transfer-Encoding: chunked\r\nUpgrade: h3\r\nTE: gzip\r\n\r\n";
    let request = request(text, true, "", &mut CachedFields::default()).unwrap();
    assert_eq!((request.method().as_str(), request.uri().to_string()), ("POST", "https://a.test/a?b".into()));
    let fields: Vec<_> = request.headers().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(fields, ["x-case"]);
}

#[test]
fn secret_fields_are_never_indexed() {
    let text = b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nProxy-Authorization: b\r\nX-Other: c\r\n\r\n";
    let mut last = CachedFields::default();
    // The third round reads from the cache.
    for _ in 0..3 {
        let request = request(text, false, "", &mut last).unwrap();
        let sensitive = request.headers().iter().filter(|(_, value)| value.is_sensitive());
        let names: Vec<_> = sensitive.map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["authorization", "proxy-authorization"]);
    }
}

#[test]
fn fields_that_come_again_are_the_same_and_others_are_noticed() {
    let mut last = CachedFields::default();
    let mut check = |line: &str, host: &str, fields: &[(&str, &str)]| {
        let text = format!("{line} HTTP/1.1\r\nHost: {host}\r\nX-A: 1\r\n{}\r\n", joined(fields));
        let head = request(text.as_bytes(), false, "", &mut last).unwrap();
        let alone = request(text.as_bytes(), false, "", &mut CachedFields::default()).unwrap();
        assert_eq!((head.method(), head.uri()), (alone.method(), alone.uri()));
        assert_eq!(head.headers(), alone.headers());
        assert_eq!(head.uri().host(), Some(host));
    };
    for _ in 0..3 {
        check("GET /1", "a.test", &[("X-B", "2"), ("Accept", "*/*")]);
        check("POST /2?q", "a.test", &[("X-B", "2"), ("Accept", "*/*")]);
    }
    check("GET /1", "b.test", &[("X-B", "2"), ("Accept", "*/*")]);
    check("GET /1", "b.test", &[("X-B", "3"), ("Accept", "*/*")]);
    check("GET /1", "b.test", &[]);
    let long = "x".repeat(4096);
    check("GET /1", "b.test", &[("X-B", &long)]);
    check("GET /1", "b.test", &[("X-B", &long)]);
    check("GET /1", "b.test", &[]);
}

fn joined(fields: &[(&str, &str)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

#[test]
fn te_may_contain_only_trailers() {
    let head = |te: &str| {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nTE: {te}\r\n\r\n");
        let request = request(text.as_bytes(), true, "", &mut CachedFields::default()).unwrap();
        request.headers().get("te").cloned()
    };
    assert_eq!(head("trailers").unwrap(), "trailers");
    assert_eq!(head("gzip"), None);
    assert_eq!(head("trailers, gzip"), None);
}

#[test]
fn targets_that_uris_do_not_have_are_encoded() {
    let check = |target: &[u8], expected: &str| {
        let text = [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        let request = request(&text, false, "", &mut CachedFields::default()).unwrap();
        assert_eq!(request.uri().path_and_query().unwrap().as_str(), expected);
    };
    check(b"/a%20b", "/a%20b");
    check(b"/\xff<x>", "/%FF%3Cx%3E");
    check(b"*", "*");
    check(b"/{\"a\"}|^\\", "/{\"a\"}|^\\");
}

#[test]
fn request_without_authority_uses_that_of_the_endpoint() {
    let text = b"GET / HTTP/1.0\r\nHost: \r\n\r\n";
    let request = request(text, false, "10.0.0.1:80", &mut CachedFields::default()).unwrap();
    assert_eq!(request.uri().authority().unwrap().as_str(), "10.0.0.1:80");
}

#[test]
fn a_response_goes_both_ways() {
    let text =
        b"HTTP/1.1 404 Nope\r\nServer: x\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nConnection: close\r\n\r\n";
    let sent = response(text, false).unwrap();
    assert_eq!(sent.status(), 404);
    let mut head = ResponseHead::default();
    let limits = HeadLimits::default();
    let h2_request = yumen_http::Method::Get;
    read_response(&sent, false, &limits, h2_request, &mut head).unwrap();
    assert_eq!((head.status, head.framing), (404, Framing::Close));
    assert_eq!(head.fields.all("set-cookie").count(), 2);
    head.clear();
    read_response(&sent, true, &limits, h2_request, &mut head).unwrap();
    assert_eq!(head.framing, Framing::Length(0));
}

#[test]
fn a_change_of_protocols_is_a_success() {
    let text = b"HTTP/1.1 101 \r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: x\r\n\
        Sec-WebSocket-Protocol: chat\r\n\r\n";
    let sent = response(text, false).unwrap();
    assert_eq!(sent.status(), 200);
    let fields: Vec<_> = sent.headers().keys().map(HeaderName::as_str).collect();
    assert_eq!(fields, ["sec-websocket-protocol"]);
}

#[test]
fn trailers_keep_their_order_and_lose_what_frames() {
    let trailers = trailers(b"grpc-status: 0\r\nContent-Length: 3\r\ngrpc-message: a\r\n\r\n");
    assert_eq!(trailer_lines(&trailers), b"grpc-status: 0\r\ngrpc-message: a\r\n");
}
