//! Tables of heads: parsed values, and every reason for rejection.

use proptest::prelude::*;

use super::{HeadError, HeadLimits, ParsedHead, field_parts, head_end, request, response};
use super::{any_request_line, any_status_line, request_line, status_line};
use crate::encode;
use crate::fields::ByteSpan;
use crate::head::{Framing, HttpVersion, Method, RequestHead, ResponseHead};

fn parse(text: &str) -> Result<RequestHead, HeadError> {
    let mut head = RequestHead::default();
    let limits = HeadLimits::default();
    match request(text.as_bytes(), 0, &limits, &mut head)? {
        ParsedHead::Head(end) => assert_eq!(&text[end..], "", "{text:?}"),
        ParsedHead::Partial => panic!("{text:?} has no end"),
    }
    Ok(head)
}

fn good(text: &str) -> RequestHead {
    parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Expects a rejection whose message contains `expected`.
fn check_malformed(text: &str, expected: &str) {
    match parse(text) {
        Err(HeadError::Malformed(message)) => assert!(message.contains(expected), "{text:?}: {message}"),
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn a_request_is_read_in_all_its_parts() {
    let head =
        good("POST /a%20b/../c?x=%41&y HTTP/1.1\r\nHost: Shop.Example:80\r\nContent-Length: 12\r\n\r\n");
    assert_eq!(head.method(), Method::Post);
    assert_eq!(head.target(), b"/a%20b/../c?x=%41&y");
    assert_eq!(head.real_request_uri(), b"/a%20b/../c?x=%41&y");
    assert_eq!(head.upstream_target(), b"/c?x=%41&y");
    assert_eq!(head.path(), b"/c");
    assert_eq!(head.query(), Some(&b"x=%41&y"[..]));
    assert_eq!((head.host(), head.authority()), (&b"shop.example"[..], &b"Shop.Example:80"[..]));
    assert_eq!((head.version, head.framing), (HttpVersion::Http11, Framing::Length(12)));
    assert!(head.persistent());
    let head = good("REPORT /? HTTP/1.0\r\n\r\n");
    assert_eq!((head.method(), head.method_name()), (Method::Other, &b"REPORT"[..]));
    assert_eq!((head.path(), head.query(), head.host()), (&b"/"[..], Some(&b""[..]), &b""[..]));
    assert_eq!((head.version, head.framing), (HttpVersion::Http10, Framing::None));
    assert!(!head.persistent());
}

#[test]
fn request_lines_that_are_not_exactly_one_are_refused() {
    let check = |line: &str, expected| check_malformed(&format!("{line}\r\nHost: a\r\n\r\n"), expected);
    check("GET", "no target");
    check("GET /", "no version");
    check("GET  HTTP/1.1", "character");
    check("GET / a HTTP/1.1", "character");
    check(" GET / HTTP/1.1", "not a token");
    check("G(T / HTTP/1.1", "not a token");
    check("GET\t/ HTTP/1.1", "no version");
    check("GET /\x01 HTTP/1.1", "character");
    check("GET /a#b HTTP/1.1", "character");
    check("GET / HTTP/1.1 ", "HTTP/1.x");
    check("GET / http/1.1", "HTTP/1.x");
    check("GET / HTTP/1.10", "HTTP/1.x");
    check("GET / HTTP/1,1", "HTTP/1.x");
    check("GET a HTTP/1.1", "neither a path");
    check("GET * HTTP/1.1", "neither a path");
    check("GET ftp://a/ HTTP/1.1", "neither a path");
    check("GET /%zz HTTP/1.1", "percent escape");
    check("GET /.. HTTP/1.1", "climbs");
    assert_eq!(parse("GET / HTTP/2.0\r\nHost: a\r\n\r\n").unwrap_err(), HeadError::UnknownVersion);
    assert_eq!(parse("GET / HTTP/0.9\r\nHost: a\r\n\r\n").unwrap_err(), HeadError::UnknownVersion);
    assert_eq!(good("GET / HTTP/1.9\r\nHost: a\r\n\r\n").version, HttpVersion::Http11);
}

#[test]
fn field_lines_that_could_be_read_two_ways_are_refused() {
    let check = |lines: &str, expected| {
        check_malformed(&format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n"), expected);
    };
    check("A : b", "not a token");
    check(" A: b", "not a token");
    check("A: b\r\n folded: c", "not a token");
    check("A: b\r\n\tfolded", "no colon");
    check("nocolon", "no colon");
    check(": b", "not a token");
    check("A\0: b", "not a token");
    check("A: b\0c", "control character");
    check("A: b\rc", "control character");
    check("A: 12345678\x0112345678", "control character");
    check("A: 1234567\x7f", "control character");
    check("A: b\nC: d", "carriage return");
    check_malformed("GET / HTTP/1.1\nHost: a\n\n", "carriage return");
    check_malformed("GET / HTTP/1.1\r\nHost: a\r\n\n", "carriage return");
}

#[test]
fn values_keep_bytes_past_ascii_and_lose_the_space_around_them() {
    let head = good("GET /é HTTP/1.1\r\nHost:a\r\nA: \t caf\u{e9} x \t\r\nB:\r\n\r\n");
    assert_eq!(head.fields.get("a"), Some("café x".as_bytes()));
    assert_eq!(head.fields.get("b"), Some(&b""[..]));
    assert_eq!(head.host(), b"a");
}

#[test]
fn bodies_whose_end_is_in_doubt_are_refused() {
    let framing = |version: &str, lines: &str| {
        parse(&format!("POST / HTTP/{version}\r\nHost: a\r\n{lines}\r\n\r\n")).map(|head| head.framing)
    };
    let length = "the Content-Length is not a number";
    for value in ["+5", "-5", "0x5", "5, 5", "5,5", "5 5", "", "5.0", "1e2", "5;", "9999999999999999999"] {
        let found = framing("1.1", &format!("Content-Length: {value}"));
        assert_eq!(found, Err(HeadError::Malformed(length)), "{value:?}");
    }
    assert_eq!(framing("1.1", "Content-Length: 005"), Ok(Framing::Length(5)));
    assert_eq!(framing("1.1", "Content-Length: 0"), Ok(Framing::None));
    assert_eq!(framing("1.1", "Transfer-Encoding: Chunked"), Ok(Framing::Chunked));
    let refused = [
        ("1.1", "Content-Length: 5\r\nContent-Length: 5", "more than one Content-Length"),
        ("1.1", "Content-Length: 5\r\nTransfer-Encoding: chunked", "both"),
        ("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5", "both"),
        ("1.1", "Transfer-Encoding: chunked, chunked", "not one chunked"),
        ("1.1", "Transfer-Encoding: chunked\r\ntransfer-encoding: chunked", "not one chunked"),
        ("1.1", "Transfer-Encoding:", "not one chunked"),
        ("1.1", "Transfer-Encoding: ,", "not one chunked"),
        ("1.0", "Transfer-Encoding: chunked", "HTTP/1.0"),
        ("1.1", "Transfer-Encoding : chunked", "not a token"),
        ("1.1", "Transfer-Encoding:\x0bchunked", "control character"),
    ];
    for (version, lines, expected) in refused {
        match framing(version, lines) {
            Err(HeadError::Malformed(message)) => assert!(message.contains(expected), "{lines:?}: {message}"),
            other => panic!("{lines:?}: {other:?}"),
        }
    }
    for coding in ["xchunked", "chunked;q=1", "gzip", "gzip, chunked", "chunked, identity", "\"chunked\""] {
        let found = framing("1.1", &format!("Transfer-Encoding: {coding}"));
        assert_eq!(found, Err(HeadError::UnknownCoding), "{coding:?}");
    }
}

#[test]
fn hosts_lose_case_port_and_trailing_dot() {
    let check = |authority: &str, host: &str| {
        let head = good(&format!("GET / HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
        assert_eq!(String::from_utf8_lossy(head.host()), host, "{authority}");
        assert_eq!(String::from_utf8_lossy(head.authority()), authority);
    };
    check("a.example", "a.example");
    check("A.Example:8080", "a.example");
    check("a.example.", "a.example");
    check("a.example.:443", "a.example");
    check("[2001:DB8::1]:80", "[2001:db8::1]");
    check("[::1]", "[::1]");
    check("192.0.2.1:1", "192.0.2.1");
    check("[::FFFF:192.0.2.1]:080", "[::ffff:192.0.2.1]");
    check("a:", "a");
    check("[::1]:", "[::1]");
    check("", "");
    check(".", "");
}

#[test]
fn a_host_is_there_once_and_is_one() {
    check_malformed("GET / HTTP/1.1\r\n\r\n", "no Host");
    check_malformed("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", "more than one Host");
    let bad_bytes = ["a b", "a/b", "u@a", "u:p@a", "a?b", "a#b", "a\\b", "a\"b", "é"];
    let bad_ports = ["a:b", "a:b:c", "a:1:2", ":80", ":", "a:+1", "a:123456", "[::1]:x"];
    let bad_brackets = ["::1", "1:2::3:80", "[::1", "::1]", "[::1]a", "a[::1]", "[]", "[a]", "[[::1]]", "a]"];
    for host in bad_bytes.into_iter().chain(bad_ports).chain(bad_brackets) {
        check_malformed(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), "not a host");
    }
}

#[test]
fn absolute_forms_replace_the_host() {
    let check = |target: &str, host: &str, upstream: &str| {
        let head = good(&format!("GET {target} HTTP/1.1\r\nHost: other:1\r\n\r\n"));
        assert_eq!(String::from_utf8_lossy(head.host()), host, "{target}");
        assert_eq!(String::from_utf8_lossy(head.upstream_target()), upstream, "{target}");
        assert_eq!(head.fields.get("host"), Some(head.authority()), "{target}");
        assert_eq!(head.fields.all("host").count(), 1);
        assert_eq!(head.target(), target.as_bytes());
    };
    check("http://A.example/b?c", "a.example", "/b?c");
    check("HTTPS://a.example:444/", "a.example", "/");
    check("http://a.example", "a.example", "/");
    check("http://a.example?q=/x", "a.example", "/?q=/x");
    let bad =
        ["http://", "http:///a", "http://u@a/", "http://?q", "https://é/", "http://a:b:c/", "http://[::1/"];
    for target in bad {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(matches!(parse(&text), Err(HeadError::Malformed(_))), "{target}");
    }
}

#[test]
fn close_wins_over_keep_alive() {
    let persistent = |version: &str, lines: &str| {
        good(&format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n\r\n")).persistent()
    };
    for lines in ["Connection: close, keep-alive", "Connection: Keep-Alive\r\nConnection: CLOSE"] {
        assert!(!persistent("1.1", lines), "{lines}");
        assert!(!persistent("1.0", lines), "{lines}");
    }
    assert!(persistent("1.0", "Connection: x, Keep-Alive"));
    assert!(persistent("1.1", "Connection: x"));
}

#[test]
fn the_other_two_forms_belong_to_their_methods() {
    let head = good("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.path(), head.upstream_target(), head.host()), (&b"*"[..], &b"*"[..], &b"a"[..]));
    let head = good("OPTIONS http://A.example:81 HTTP/1.1\r\nHost: b\r\n\r\n");
    assert_eq!((head.path(), head.upstream_target(), head.query()), (&b"*"[..], &b"*"[..], None));
    assert_eq!((head.host(), head.authority()), (&b"a.example"[..], &b"A.example:81"[..]));
    for (target, upstream) in [("http://a/", "/"), ("http://a?b", "/?b")] {
        let head = good(&format!("OPTIONS {target} HTTP/1.1\r\nHost: b\r\n\r\n"));
        assert_eq!(head.upstream_target(), upstream.as_bytes());
    }
    for target in ["a:443:1", ":443", "u@a:443", "", "a:x"] {
        let text = format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(matches!(parse(&text), Err(HeadError::Malformed(_))), "{target}");
    }
    let head = good("CONNECT B.example:443 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.host(), head.upstream_target()), (&b"b.example"[..], &b"B.example:443"[..]));
}

#[test]
fn heads_are_bounded() {
    let limits =
        HeadLimits { head_bytes_max: 80, target_bytes_max: 10, fields_max: 2, ..HeadLimits::default() };
    let check = |text: &str, expected: Result<ParsedHead, HeadError>| {
        assert_eq!(request(text.as_bytes(), 0, &limits, &mut RequestHead::default()), expected, "{text:?}");
    };
    let fits = format!("GET /123456789 HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "x".repeat(39));
    assert_eq!(fits.len(), 80);
    check(&fits, Ok(ParsedHead::Head(80)));
    check(&fits.replace("\r\nA", "x\r\nA"), Err(HeadError::TooLarge));
    check("GET /1234567890 HTTP/1.1\r\nHost: a\r\n\r\n", Err(HeadError::TargetTooLong));
    check(&format!("GET /{}", "a".repeat(60)), Err(HeadError::TargetTooLong));
    check(&format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(80)), Err(HeadError::TooLarge));
    check("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\n\r\n", Err(HeadError::TooManyFields));
    check("", Ok(ParsedHead::Partial));
    // Empty lines before the head count, because the buffer may be no larger than a head.
    let unfinished = |bytes: usize| format!("\r\n\r\nGET / HTTP/1.1\r\nA: {}", "a".repeat(bytes - 23));
    check(&unfinished(79), Ok(ParsedHead::Partial));
    check(&unfinished(80), Err(HeadError::TooLarge));
    let scanned = |text: &str| request(text.as_bytes(), 30, &limits, &mut RequestHead::default());
    assert_eq!(scanned(&unfinished(79)), Ok(ParsedHead::Partial));
    assert_eq!(scanned(&unfinished(80)), Err(HeadError::TooLarge));
    check(&format!("\r\n{fits}"), Err(HeadError::TooLarge));
    check(&format!("\r\n{}", fits.replacen("xx", "", 1)), Ok(ParsedHead::Head(80)));
}

#[test]
fn the_end_is_found_whatever_was_scanned_before() {
    for text in ["a\r\n\r\nrest", "a\r\nb\r\n\r\n", "a\n\n", "a\n\r\n", "\r\n\r\n"] {
        let bytes = text.as_bytes();
        let end = head_end(bytes, 0).expect(text);
        for scanned in 0..end {
            assert_eq!(head_end(&bytes[..scanned], 0), None, "{text:?} to {scanned}");
            assert_eq!(head_end(bytes, scanned), Some(end), "{text:?} from {scanned}");
        }
    }
    assert_eq!(head_end(b"a\r\nb: c\r\n", 0), None);
}

#[test]
fn a_head_arriving_in_pieces_is_read_as_one() {
    let text = b"\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\nbody";
    let mut head = RequestHead::default();
    let limits = HeadLimits::default();
    for received in 0..text.len() {
        for scanned in [0, received.saturating_sub(1).min(37)] {
            head.clear();
            let found = request(&text[..received], scanned, &limits, &mut head);
            let expected = if received < 38 { ParsedHead::Partial } else { ParsedHead::Head(38) };
            assert_eq!(found, Ok(expected), "{received} bytes");
        }
    }
}

fn answer(text: &str, method: Method) -> Result<ResponseHead, HeadError> {
    let mut head = ResponseHead::default();
    match response(text.as_bytes(), 0, &HeadLimits::default(), method, &mut head)? {
        ParsedHead::Head(_) => Ok(head),
        ParsedHead::Partial => panic!("{text:?} has no end"),
    }
}

#[test]
fn responses_are_read_in_all_their_parts() {
    let head = answer("HTTP/1.1 404 Not  Found\r\nServer: x\r\n\r\n", Method::Get).unwrap();
    assert_eq!((head.status, head.reason()), (404, &b"Not  Found"[..]));
    assert_eq!((head.framing, head.persistent()), (Framing::Close, false));
    for line in ["HTTP/1.1 200", "HTTP/1.1 200 "] {
        assert_eq!(answer(&format!("{line}\r\n\r\n"), Method::Get).unwrap().reason(), b"", "{line}");
    }
}

#[test]
fn status_lines_that_are_not_one_are_refused() {
    let lines = [
        "HTTP/1.1",
        "HTTP/1.1 20",
        "HTTP/1.1  200 OK",
        "HTTP/1.1 2000",
        "HTTP/1.1 2x0 OK",
        "HTTP/1.1 099 X",
        "HTTP/1.1 200\tOK",
        "HTTP/1.1 200 O\rK",
        "HTTP/1.1 +20 OK",
        "ICY 200 OK OK OK",
        "http/1.1 200 OK",
    ];
    for line in lines {
        let found = answer(&format!("{line}\r\n\r\n"), Method::Get);
        assert!(matches!(found, Err(HeadError::Malformed(_))), "{line}: {found:?}");
    }
    assert_eq!(answer("HTTP/2.0 200 OK\r\n\r\n", Method::Get).unwrap_err(), HeadError::UnknownVersion);
}

#[test]
fn the_end_of_a_response_depends_on_the_question_and_the_status() {
    let check = |status: u16, lines: &str, method: Method, expected: Framing| {
        let head = answer(&format!("HTTP/1.1 {status} X\r\n{lines}\r\n\r\n"), method).unwrap();
        assert_eq!(head.framing, expected, "{status} {lines} {method:?}");
    };
    check(200, "Content-Length: 5", Method::Get, Framing::Length(5));
    check(200, "Content-Length: 0", Method::Get, Framing::Length(0));
    check(200, "Content-Length: 5", Method::Head, Framing::None);
    check(304, "Content-Length: 5", Method::Get, Framing::None);
    check(204, "A: b", Method::Get, Framing::None);
    check(101, "A: b", Method::Get, Framing::None);
    check(200, "A: b", Method::Connect, Framing::None);
    check(407, "Content-Length: 5", Method::Connect, Framing::Length(5));
    check(200, "Transfer-Encoding: chunked", Method::Get, Framing::Chunked);
    for lines in ["Content-Length: 5\r\nTransfer-Encoding: chunked", "Content-Length: 5\r\nContent-Length: 6"]
    {
        let found = answer(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n"), Method::Get);
        assert!(matches!(found, Err(HeadError::Malformed(_))), "{lines}");
    }
}

fn field() -> impl Strategy<Value = (String, String)> {
    ("x-[a-zA-Z0-9!#$%&'*+.^_`|~-]{1,24}", "([!-~]([ -~]{0,30}[!-~])?)?")
}

/// A field with an effect on parsing, or another.
fn meaning_field() -> impl Strategy<Value = (String, String)> {
    let decides = prop_oneof![
        ("[Hh]ost", "a\\.b(:80)?|a b||\\[::1\\]"),
        ("content-length", "0|7|07|-1|99999999999999999999|7, 7"),
        ("transfer-encoding", "chunked|gzip|chunked, chunked|identity"),
        ("connection", "close|keep-alive, x-a|upgrade"),
        ("expect|upgrade|te", "100-continue|websocket|trailers"),
    ];
    prop_oneof![3 => decides, 1 => field()]
}

/// The fields of a response head, regardless of their position in the block.
fn summary(head: ResponseHead) -> String {
    let fields: Vec<(&[u8], &[u8])> = head.fields.iter().collect();
    format!("{} {:?} {:?} {fields:?}", head.status, head.framing, head.options)
}

/// Cookies split for compression are joined; other repeated fields remain separate.
#[test]
fn split_cookies_are_joined() {
    let pairs =
        [("host", "a"), ("cookie", "a=1"), ("cookie", "b=2"), ("x", "1"), ("x", "2"), ("cookie", "c=3")];
    let mut head = RequestHead::default();
    let limits = HeadLimits { fields_max: 5, ..HeadLimits::default() };
    let bytes = pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    field_parts::request(b"GET", b"/", bytes, &limits, &mut head).unwrap();
    let cookies: Vec<&[u8]> = head.fields.all("cookie").collect();
    assert_eq!(cookies, [&b"a=1; b=2"[..], b"c=3"]);
    assert_eq!(head.cookie(b"b"), Some(&b"2"[..]));
    assert_eq!(head.fields.all("x").count(), 2);
}

#[test]
fn heads_that_come_apart_are_bounded() {
    let read = |limits: HeadLimits| {
        let pairs = [("host", "a"), ("x-long", "0123456789012345")];
        let bytes = pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        field_parts::request(b"GET", b"/four", bytes, &limits, &mut RequestHead::default())
    };
    let limits = HeadLimits::default();
    // The request line, two field lines and the empty line: 20 + 9 + 26 + 2 bytes.
    assert_eq!(
        read(HeadLimits { head_bytes_max: 57, fields_max: 2, target_bytes_max: 5, ..HeadLimits::default() }),
        Ok(())
    );
    assert_eq!(read(HeadLimits { head_bytes_max: 56, ..limits }), Err(HeadError::TooLarge));
    assert_eq!(read(HeadLimits { fields_max: 1, ..limits }), Err(HeadError::TooManyFields));
    assert_eq!(read(HeadLimits { target_bytes_max: 4, ..limits }), Err(HeadError::TargetTooLong));
}

proptest! {
    #[test]
    fn a_head_that_is_written_is_read_back_the_same(
        method in "[A-Z]{1,10}",
        path in "(/[a-z0-9_~;=@,!$&'()*+:-]{1,8}){1,4}",
        query in proptest::option::of("[!-\"$-~]{0,20}"),
        host in "[a-z0-9-]{1,10}(\\.[a-z0-9-]{1,10}){0,2}",
        length in proptest::option::of(1u64..1_000_000_000),
        fields in prop::collection::vec(field(), 0..12),
    ) {
        prop_assume!(method != "CONNECT");
        let target = query.as_ref().map_or(path.clone(), |query| format!("{path}?{query}"));
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
        for (name, value) in &fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(length) = length {
            text.push_str(&format!("Content-Length: {length}\r\n"));
        }
        text.push_str("\r\n");
        let head = good(&text);
        prop_assert_eq!(head.path(), path.as_bytes());
        prop_assert_eq!(head.query(), query.as_deref().map(str::as_bytes));
        prop_assert_eq!(head.host(), host.as_bytes());
        prop_assert_eq!(head.framing, length.map_or(Framing::None, Framing::Length));
        let found: Vec<(&[u8], &[u8])> = head.fields.iter().skip(1).take(fields.len()).collect();
        let expected: Vec<_> = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        prop_assert_eq!(found, expected);
        let mut out = Vec::new();
        encode::request_line(&mut out, &head);
        // The received length is among the fields.
        encode::request_fields(&mut out, &head, |_| false);
        out.extend_from_slice(b"\r\n");
        prop_assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn fields_that_come_apart_are_read_as_lines_are(
        method in "GET|POST|OPTIONS|CONNECT|REPORT|G T",
        target in "/[a-z%.?/\x01]{0,12}|\\*|a\\.b:[0-9]{1,6}|https?://(a\\.b)?/x",
        status in 100u16..600,
        fields in prop::collection::vec(meaning_field(), 0..6),
    ) {
        let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let pairs = || fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let limits = HeadLimits::default();

        let mut head = RequestHead::default();
        let read = field_parts::request(method.as_bytes(), target.as_bytes(), pairs(), &limits, &mut head).map(|()| head);
        let lined = parse(&format!("{method} {target} HTTP/1.1\r\n{lines}\r\n"));
        prop_assert_eq!(format!("{read:?}"), format!("{lined:?}"));

        let method = Method::of(method.as_bytes());
        let mut head = ResponseHead::default();
        let read = field_parts::response(status, pairs(), &limits, method, &mut head).map(|()| head);
        let lined = answer(&format!("HTTP/1.1 {status} \r\n{lines}\r\n"), method);
        prop_assert_eq!(read.map(summary), lined.map(summary));
    }

    #[test]
    fn usual_first_lines_are_read_as_any_are(
        method in "GET|PUT|DELETE|OPTIONS|REPORT|G T|",
        target in "[/a-z%\u{e4} \x01#]{0,20}",
        status in "[0-9]{2,4}|200|404",
        reason in "[ A-Za-z\t\u{e4}\x01]{0,20}",
        version in "HTTP/1\\.1|HTTP/1\\.[0-9]|HTTP/2\\.0|http/1\\.1",
        end in "\r\n|\n|\r",
    ) {
        let limits = HeadLimits { target_bytes_max: 12, ..HeadLimits::default() };
        let line = format!("{method} {target} {version}{end}Host: a\r\n\r\n");
        let (mut one, mut other) = (RequestHead::default(), RequestHead::default());
        let read = request_line(line.as_bytes(), &mut one, &limits);
        let any = any_request_line(line.as_bytes(), &mut other, &limits);
        prop_assert_eq!(&read, &any.map(|(_, _, next)| next));
        if let Ok((method_end, target_end, _)) = any {
            prop_assert_eq!((one.version, one.method), (other.version, other.method));
            prop_assert_eq!((one.method_span, one.target.received), (ByteSpan::new(0, method_end), ByteSpan::new(method_end + 1, target_end)));
        }

        let line = format!("{version} {status} {reason}{end}Date: now\r\n\r\n");
        let (mut one, mut other) = (ResponseHead::default(), ResponseHead::default());
        let read = status_line(line.as_bytes(), &mut one);
        prop_assert_eq!(&read, &any_status_line(line.as_bytes(), &mut other));
        if read.is_ok() {
            prop_assert_eq!((one.version, one.status, one.reason), (other.version, other.status, other.reason));
        }
    }

    #[test]
    fn no_bytes_panic_the_parsers(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        at in 0usize..90,
    ) {
        let mut text = b"POST /a/%41/../b?c=d HTTP/1.1\r\nHost: a:1\r\nContent-Length: 3\r\nConnection: x\r\n\r\n".to_vec();
        let at = at.min(text.len());
        let end = (at + bytes.len() / 8).min(text.len());
        let replaced: Vec<u8> = bytes.iter().copied().take(bytes.len() / 8).collect();
        text.splice(at..end, replaced);
        for input in [&bytes, &text] {
            let _ = request(input, 0, &HeadLimits::default(), &mut RequestHead::default());
            let _ = response(input, 0, &HeadLimits::default(), Method::Get, &mut ResponseHead::default());
        }
    }
}

#[test]
fn content_length_agrees_with_its_framing_only() {
    let check = |framing: Framing, value: &str, expected: bool| {
        assert_eq!(framing.agrees_with(value.as_bytes()), expected, "{framing:?} {value}");
    };
    check(Framing::Length(43), "43", true);
    check(Framing::Length(43), "44", false);
    check(Framing::Length(43), "43, 43", false);
    check(Framing::None, "0", true);
    check(Framing::None, "43", false);
    check(Framing::Chunked, "0", false);
    check(Framing::Close, "43", false);
}
