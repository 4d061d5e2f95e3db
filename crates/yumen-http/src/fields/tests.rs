//! Field lists: known names, edits, and serialization.

use super::{FieldName, Fields, KnownField};
use crate::head::{RequestHead, is_hop_by_hop};
use crate::parse::{HeadLimits, request};

fn received(lines: &str) -> RequestHead {
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", lines.replace('\n', "\r\n"));
    let mut head = RequestHead::default();
    request(text.as_bytes(), 0, &HeadLimits::default(), &mut head).expect("a well-formed head");
    head
}

fn written(fields: &Fields) -> String {
    let mut out = Vec::new();
    fields.write(&mut out, |_| true);
    String::from_utf8(out).unwrap().replace("\r\n", "|")
}

const KNOWN: [&str; 35] = [
    "te",
    "host",
    "date",
    "vary",
    "range",
    "accept",
    "cookie",
    "expect",
    "origin",
    "server",
    "apikey",
    "referer",
    "trailer",
    "upgrade",
    "forwarded",
    "x-real-ip",
    "connection",
    "keep-alive",
    "set-cookie",
    "user-agent",
    "content-type",
    "x-request-id",
    "authorization",
    "content-length",
    "accept-encoding",
    "x-forwarded-for",
    "content-encoding",
    "proxy-connection",
    "x-forwarded-host",
    "x-forwarded-port",
    "www-authenticate",
    "x-forwarded-proto",
    "transfer-encoding",
    "proxy-authenticate",
    "proxy-authorization",
];

#[test]
fn known_names_are_recognised_in_any_case_and_nothing_else_is() {
    for name in KNOWN {
        let known = KnownField::of(name.as_bytes());
        assert_eq!(known.name(), name);
        assert_eq!(KnownField::of(name.to_uppercase().as_bytes()), known, "{name}");
        assert_eq!(
            KnownField::of(&name.as_bytes()[1..]),
            KnownField::Other,
            "{name} without its first letter"
        );
        assert_eq!(KnownField::of(name.replace('-', "_").as_bytes()) == known, !name.contains('-'), "{name}");
        assert_eq!(KnownField::of(format!("{name}x").as_bytes()), KnownField::Other, "{name}");
    }
    assert_eq!(KnownField::of(b""), KnownField::Other);
    assert_eq!(KnownField::of(&[b'a'; 300]), KnownField::Other);
}

#[test]
fn fields_are_found_whatever_their_case() {
    let head = received("X-A: 1\nx-a: 2\nCookie: c\nX-Ab: 3\n");
    let fields = &head.fields;
    assert_eq!(fields.get("x-A"), Some(&b"1"[..]));
    assert_eq!(fields.all("X-A").collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(fields.get("COOKIE"), Some(&b"c"[..]));
    assert_eq!(fields.known(KnownField::Cookie), Some(&b"c"[..]));
    assert_eq!(fields.get("X"), None);
    assert!(fields.has("host") && !fields.has("origin"));
    assert_eq!(fields.len(), 5);
}

#[test]
fn edits_keep_the_order_and_leave_other_lines_as_they_came() {
    let check = |edit: fn(&mut Fields), expected: &str| {
        let mut fields = received("A:1\nb:  2 \nA: 3\nCookie: c\n").fields;
        edit(&mut fields);
        assert_eq!(written(&fields), expected);
    };
    check(|_| {}, "Host: a|A:1|b:  2 |A: 3|Cookie: c|");
    check(|fields| fields.set("a", b"x"), "Host: a|a: x|b:  2 |Cookie: c|");
    check(|fields| fields.set("COOKIE", b"d"), "Host: a|A:1|b:  2 |A: 3|COOKIE: d|");
    check(|fields| fields.set("New", b"n"), "Host: a|A:1|b:  2 |A: 3|Cookie: c|New: n|");
    check(|fields| fields.add("A", b" 4 "), "Host: a|A:1|b:  2 |A: 3|Cookie: c|A: 4|");
    check(|fields| assert!(fields.remove("a")), "Host: a|b:  2 |Cookie: c|");
    check(|fields| assert!(!fields.remove("z")), "Host: a|A:1|b:  2 |A: 3|Cookie: c|");
    check(|fields| assert!(fields.remove("host")), "A:1|b:  2 |A: 3|Cookie: c|");
    check(
        |fields| {
            fields.set("b", b"x");
            fields.set("b", b"y");
            fields.remove("cookie");
            fields.add("cookie", b"");
        },
        "Host: a|A:1|b: y|A: 3|cookie: |",
    );
}

#[test]
fn fields_of_another_list_take_the_place_of_their_namesakes() {
    let check = |others: &Fields, expected: &str| {
        let mut fields = received("X-A:1\nb:  2 \nx-a: 3\nCookie: c\n").fields;
        fields.replace(others);
        assert_eq!(written(&fields), expected);
        // A known name is found by its text.
        assert_eq!(fields.known(KnownField::Cookie), fields.get("cookie"));
        assert_eq!(fields.known(KnownField::Date), fields.get("date"));
    };
    let mut others = Fields::default();
    check(&others, "Host: a|X-A:1|b:  2 |x-a: 3|Cookie: c|");
    others.set("X-a", b"4");
    others.set("X-a", b"5");
    check(&others, "Host: a|b:  2 |Cookie: c|X-a: 5|");
    others.add("COOKIE", b"d");
    others.add("Date", b"now");
    others.add("cookie", b"e");
    check(&others, "Host: a|b:  2 |X-a: 5|COOKIE: d|Date: now|cookie: e|");
    check(&received("B:9\nNew:  n\n").fields, "X-A:1|x-a: 3|Cookie: c|Host: a|B:9|New:  n|");
}

#[test]
fn no_value_can_start_a_line_of_its_own() {
    let mut fields = Fields::default();
    fields.add("A", b"x\r\nB: y\0\x7f\tz");
    fields.set("A2", b"\r\n\r\n");
    assert_eq!(written(&fields), "A: x  B: y  \tz|A2:     |");
}

#[test]
fn a_name_that_is_not_a_token_is_not_written() {
    let mut fields = Fields::default();
    fields.add("A", b"1");
    for name in ["", "X Y", "X:", "X\r\nB: y", "X\n", "é", "X\0"] {
        fields.add(name, b"forged");
        fields.set(name, b"forged");
    }
    assert_eq!(written(&fields), "A: 1|");
}

#[test]
fn a_method_that_is_not_a_token_is_ignored() {
    let mut head = received("");
    for method in ["", "GE T", "GET / HTTP/1.1\r\nA: b\r\n\r\nGET", "GET\n"] {
        head.set_method(method);
        assert_eq!((head.method(), head.method_name()), (crate::Method::Get, &b"GET"[..]), "{method:?}");
    }
    head.set_method("PURGE");
    assert_eq!((head.method(), head.method_name()), (crate::Method::Purge, &b"PURGE"[..]));
}

#[test]
fn clearing_keeps_modest_memory_only() {
    let mut fields = Fields::default();
    fields.add("A", &[b'x'; 10_000]);
    fields.clear(4096);
    assert!(fields.is_empty() && fields.capacity() < 1000);
    fields.add("A", b"x");
    fields.clear(4096);
    assert!(fields.is_empty() && fields.capacity() > 0);
}

fn forwarded(head: &RequestHead) -> String {
    let mut out = Vec::new();
    head.fields.write(&mut out, |field| !is_hop_by_hop(&head.fields, field, head.options));
    String::from_utf8(out).unwrap().replace("\r\n", "|")
}

#[test]
fn fields_of_one_connection_are_not_forwarded() {
    let head = received(
        "Connection: close\nKeep-Alive: 5\nProxy-Connection: x\nTE: trailers\nUpgrade: h2c\nX: y\n\
         Proxy-Authorization: p\nproxy-authenticate: q\nTransfer-Encoding: chunked\n",
    );
    assert_eq!(forwarded(&head), "Host: a|X: y|");
}

#[test]
fn nominated_fields_are_not_forwarded_but_for_those_the_message_depends_on() {
    let head = received("Connection: x-a, Host,content-length\nX-A: 1\nX-B: 2\nContent-Length: 0\nx-a: 3\n");
    assert_eq!(forwarded(&head), "Host: a|X-B: 2|Content-Length: 0|");
    let head = received("Connection: keep-alive\nConnection: X-B\nX-A: 1\nX-B: 2\n");
    assert_eq!(forwarded(&head), "Host: a|X-A: 1|");
}

#[test]
fn a_client_cannot_nominate_away_what_the_gateway_set() {
    let mut head = received("Connection: X-Consumer-Username\nX-Consumer-Username: forged\n");
    head.fields.set("X-Consumer-Username", b"jack");
    assert_eq!(forwarded(&head), "Host: a|X-Consumer-Username: jack|");
}

#[test]
fn a_field_that_is_set_alone_has_no_other_that_reads_as_it() {
    let alike = "X_User: 1\nx-user: 2\nX.USER: 3\nXaUser: 4\nX-Users: 5\nXUser: 6\nX-User_: 7\nX_Us-r: 8\n";
    let mut fields = received(alike).fields;
    fields.set_only("X-User", b"jack");
    let others = "Host: a|XaUser: 4|X-Users: 5|XUser: 6|X-User_: 7|X_Us-r: 8|";
    assert_eq!(written(&fields), format!("{others}X-User: jack|"));
    assert!(fields.remove_equivalent("x_user") && !fields.remove_equivalent("x_user"));
    assert_eq!(written(&fields), others);
    // The same holds for known names.
    let mut fields = received("Content_Type: 1\nContent-Type: 2\n").fields;
    fields.set_only("content_type", b"3");
    assert_eq!(written(&fields), "Host: a|content_type: 3|");
}

#[test]
fn a_name_looked_at_once_is_set_like_any_other() {
    let mut fields = received("Left: 1\nx-left: old\nX-Left: older\nb: 2\n").fields;
    let left = FieldName::new("X-Left").expect("a token");
    fields.put(&left, b" 7 ");
    fields.put(&FieldName::new("date").expect("a token"), b"now\r\nx: y");
    assert_eq!(written(&fields), "Host: a|Left: 1|X-Left: 7|b: 2|date: now  x: y|");
    fields.put(&left, b"6");
    assert_eq!(fields.get("x-left"), Some(&b"6"[..]));
    assert_eq!(fields.known(KnownField::Date), Some(&b"now  x: y"[..]));
    assert!(FieldName::new("").is_none() && FieldName::new("a b").is_none());
}

#[test]
fn fields_set_by_the_gateway_are_recognised_anywhere() {
    let mut fields = received("a: 1\nb: 2\n").fields;
    fields.set("a", b"3");
    let mut others = Fields::default();
    others.add("c", b"4");
    fields.extend(&others);
    let set_by_gateway = |fields: &Fields| {
        let mut out = Vec::new();
        fields.write(&mut out, |field| !field.is_received());
        String::from_utf8(out).unwrap()
    };
    assert_eq!(set_by_gateway(&fields), "a: 3\r\nc: 4\r\n");
    assert_eq!(written(&fields), "Host: a|a: 3|b: 2|c: 4|");
}
