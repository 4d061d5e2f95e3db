//! Serialized heads: lines, framing, and targets rewritten by plugins.

use super::{framing, request_line, response_fields, standard_reason, status_line};
use crate::head::{Framing, Method, RequestHead, ResponseHead};
use crate::parse::{HeadLimits, request, response};

fn check_status(status: u16, reason: &str, expected: &str) {
    let mut out = Vec::new();
    status_line(&mut out, status, reason.as_bytes());
    assert_eq!(String::from_utf8(out).unwrap(), format!("{expected}\r\n"));
}

#[test]
fn status_lines_have_the_received_reason_or_the_standard_one() {
    check_status(200, "", "HTTP/1.1 200 OK");
    check_status(200, "Fine", "HTTP/1.1 200 Fine");
    check_status(404, "", "HTTP/1.1 404 Not Found");
    check_status(404, "Gone Fishing", "HTTP/1.1 404 Gone Fishing");
    check_status(599, "", "HTTP/1.1 599 ");
    assert_eq!(standard_reason(431), "Request Header Fields Too Large");
    assert_eq!(standard_reason(299), "");
}

#[test]
fn framing_field_is_written_where_required() {
    let written = |value| {
        let mut out = Vec::new();
        framing(&mut out, value);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(written(Framing::Length(1234)), "Content-Length: 1234\r\n");
    assert_eq!(written(Framing::Chunked), "Transfer-Encoding: chunked\r\n");
    assert_eq!(written(Framing::None) + &written(Framing::Close), "");
}

#[test]
fn a_rewritten_target_cannot_break_the_request_line() {
    let text = b"GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n";
    let check = |target: &str, expected: &str| {
        let mut head = RequestHead::default();
        request(text, 0, &HeadLimits::default(), &mut head).unwrap();
        assert!(!head.is_rewritten());
        head.set_upstream_target(target.as_bytes());
        assert!(head.is_rewritten());
        head.set_method("PUT");
        let mut out = Vec::new();
        request_line(&mut out, &head);
        assert_eq!(String::from_utf8(out).unwrap(), format!("PUT {expected} HTTP/1.1\r\n"));
        assert_eq!((head.target(), head.path()), (&b"/a?b"[..], &b"/a"[..]));
    };
    check("/x?y=z", "/x?y=z");
    check("x", "/x");
    check("", "/");
    check("*", "*");
    check("/a b\r\nX: y#\x7f", "/a%20b%0D%0AX:%20y%23%7F");
}

#[test]
fn a_body_that_changes_loses_its_announced_length() {
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: X-Hop\r\nX-Hop: 1\r\nA: b\r\n\r\n";
    let mut head = ResponseHead::default();
    response(text, 0, &HeadLimits::default(), Method::Get, &mut head).unwrap();
    head.body_changes(None);
    head.set_status(500);
    assert_eq!((head.framing, head.reason()), (Framing::Chunked, &b""[..]));
    let mut out = Vec::new();
    response_fields(&mut out, &head, |_| false);
    assert_eq!(String::from_utf8(out).unwrap(), "A: b\r\n");
    head.body_changes(Some(7));
    assert_eq!(head.framing, Framing::Length(7));
}
