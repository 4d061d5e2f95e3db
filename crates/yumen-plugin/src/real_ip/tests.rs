//! The client address from forwarding fields. The peer is 192.0.2.7, port 4711.

use yumen_base::IpSet;

use super::RealIpFinder;
use crate::test_exchange::with_exchange;

#[track_caller]
fn check(source: &str, trusted: Option<&str>, recursive: bool, fields: &str, expected: (&str, u16)) {
    let set = trusted.map(|list| IpSet::parse(list.split(' ')).expect("addresses"));
    let request = format!("GET /?ip=198.51.100.9&bad=x HTTP/1.1\nHost: x\nCookie: ip=203.0.113.5\n{fields}");
    let found = with_exchange(false, &request, |ex| {
        RealIpFinder::new(source, set, recursive).apply(ex);
        (ex.client.ip.to_string(), ex.client.port)
    });
    assert_eq!((found.0.as_str(), found.1), expected, "{source} {trusted:?} {fields:?}");
}

const PEER: (&str, u16) = ("192.0.2.7", 4711);

#[test]
fn a_variable_tells_the_address() {
    for (source, fields, expected) in [
        ("http_x_real_ip", "X-Real-IP: 1.2.3.4", ("1.2.3.4", 0)),
        ("http_x_real_ip", "X-Real-IP: 1.2.3.4:80", ("1.2.3.4", 80)),
        ("http_x_real_ip", "X-Real-IP: 2001:db8::1", ("2001:db8::1", 0)),
        ("http_x_real_ip", "X-Real-IP: [2001:db8::1]", ("2001:db8::1", 0)),
        ("http_x_real_ip", "X-Real-IP: [2001:db8::1]:80", ("2001:db8::1", 80)),
        ("http_x_real_ip", "X-Real-IP: ::ffff:1.2.3.4", ("1.2.3.4", 0)),
        ("http_x_real_ip", "X-Real-IP: 1.2.3.4:0", PEER),
        ("http_x_real_ip", "X-Real-IP: 1.2.3.4:65536", PEER),
        ("http_x_real_ip", "X-Real-IP: [1.2.3.4]", PEER),
        ("http_x_real_ip", "X-Real-IP: example.com", PEER),
        ("http_x_real_ip", "X-Other: 1", PEER),
        ("arg_ip", "", ("198.51.100.9", 0)),
        ("arg_bad", "", PEER),
        ("cookie_ip", "", ("203.0.113.5", 0)),
        ("no_such_variable", "", PEER),
    ] {
        check(source, None, false, fields, expected);
    }
}

#[test]
fn only_trusted_peers_are_believed() {
    let fields = "X-Real-IP: 1.2.3.4";
    check("http_x_real_ip", Some("192.0.2.0/24"), false, fields, ("1.2.3.4", 0));
    check("http_x_real_ip", Some("10.0.0.0/8 192.0.2.7"), false, fields, ("1.2.3.4", 0));
    check("http_x_real_ip", Some("192.0.2.8"), false, fields, PEER);
}

#[test]
fn the_last_address_of_a_list_counts() {
    let source = "http_x_forwarded_for";
    check(source, None, false, "X-Forwarded-For: 1.1.1.1", ("1.1.1.1", 0));
    check(source, None, false, "X-Forwarded-For: 1.1.1.1,2.2.2.2,  3.3.3.3", ("3.3.3.3", 0));
    check(source, None, false, "X-Forwarded-For: 1.1.1.1\nX-Forwarded-For: 2.2.2.2", ("2.2.2.2", 0));
    check(source, None, false, "X-Forwarded-For: 1.1.1.1, unknown", PEER);
    check(source, None, false, "X-Forwarded-For: 1.1.1.1, ,", ("1.1.1.1", 0));
}

#[test]
fn trusted_proxies_in_a_list_are_stepped_over_where_asked() {
    let (source, trusted) = ("http_x_forwarded_for", Some("192.0.2.0/24 10.0.0.0/8"));
    for (list, recursive, expected) in [
        ("1.1.1.1, 2.2.2.2, 10.0.0.1", false, ("10.0.0.1", 0)),
        ("1.1.1.1, 2.2.2.2, 10.0.0.1", true, ("2.2.2.2", 0)),
        ("1.1.1.1, 10.0.0.2, 10.0.0.1", true, ("1.1.1.1", 0)),
        ("10.0.0.3, 10.0.0.2, 10.0.0.1", true, ("10.0.0.3", 0)),
        ("1.1.1.1, garbage, 10.0.0.1", true, PEER),
        ("1.1.1.1\nX-Forwarded-For: 10.0.0.1", true, ("1.1.1.1", 0)),
    ] {
        check(source, trusted, recursive, &format!("X-Forwarded-For: {list}"), expected);
    }
    check(source, None, true, "X-Forwarded-For: 1.1.1.1, 10.0.0.1", ("10.0.0.1", 0));
}

#[test]
fn forwarded_is_understood() {
    let (source, trusted) = ("http_forwarded", Some("192.0.2.0/24 10.0.0.0/8"));
    for (value, expected) in [
        ("for=1.1.1.1", ("1.1.1.1", 0)),
        ("For=\"1.1.1.1:4711\"", ("1.1.1.1", 4711)),
        ("proto=https;for=1.1.1.1;by=10.9.9.9", ("1.1.1.1", 0)),
        ("for=\"[2001:db8:cafe::17]:4711\"", ("2001:db8:cafe::17", 4711)),
        ("for=\"[2001:db8:cafe::17]\" ; proto=http", ("2001:db8:cafe::17", 0)),
        ("for=1.1.1.1, for=2.2.2.2, for=10.0.0.1", ("2.2.2.2", 0)),
        ("for=1.1.1.1;host=\"a,for=6.6.6.6\"", ("1.1.1.1", 0)),
        ("for=1.1.1.1;host=\"a\\\",for=6.6.6.6\"", ("1.1.1.1", 0)),
        ("for=1.1.1.1, for=_hidden", PEER),
        ("for=1.1.1.1, for=unknown, for=10.0.0.1", PEER),
        ("for=1.1.1.1, proto=https", PEER),
    ] {
        check(source, trusted, true, &format!("Forwarded: {value}"), expected);
    }
}

#[test]
fn unterminated_quote_of_a_client_ends_before_appended_elements() {
    let (source, trusted) = ("http_forwarded", Some("192.0.2.0/24 10.0.0.0/8"));
    let appended = [
        ("for=9.9.9.9", ("9.9.9.9", 0)),
        ("for=\"9.9.9.9:80\"", ("9.9.9.9", 80)),
        ("for=\"[2001:db8::1]:80\";proto=https", ("2001:db8::1", 80)),
        ("for=9.9.9.9;host=\"a,b;c\"", ("9.9.9.9", 0)),
        ("for=9.9.9.9;host=\"a\\\"b\"", ("9.9.9.9", 0)),
        ("for=9.9.9.9;host=\"a\\\\\"", ("9.9.9.9", 0)),
        ("host=\",for=10.0.0.6\\\",for=10.0.0.7\";for=9.9.9.9", ("9.9.9.9", 0)),
        // Another trusted proxy after it.
        ("for=9.9.9.9;host=\"a\\\"b\", for=10.0.0.1;host=\"c\\\"d\"", ("9.9.9.9", 0)),
        ("for=9.9.9.9\nForwarded: for=10.0.0.1", ("9.9.9.9", 0)),
    ];
    let sent = [
        "x=\"",
        "for=\"10.0.0.5",
        "\"",
        "x=\"\\",
        "x=\"\\\\",
        "x=\\\"",
        "x=\"\\\"",
        "for=10.0.0.5;x=\"",
        "x=\", for=10.0.0.5",
        "for=10.0.0.5, x=\"",
        "x=\"a\", y=\"",
        "x=\"\nForwarded: for=10.0.0.5;y=\"",
        "\\",
        "for=10.0.0.5\\",
    ];
    for (appended, expected) in appended {
        for sent in sent {
            for between in [", ", ",", "\nForwarded: "] {
                check(source, trusted, true, &format!("Forwarded: {sent}{between}{appended}"), expected);
            }
        }
    }
}

#[test]
fn a_list_in_any_field_is_walked_where_proxies_are_skipped() {
    let trusted = Some("192.0.2.0/24 10.0.0.0/8");
    for (list, recursive, expected) in [
        ("6.6.6.6, 1.2.3.4, 10.0.0.1", true, ("1.2.3.4", 0)),
        ("1.2.3.4", true, ("1.2.3.4", 0)),
        ("6.6.6.6, x, 10.0.0.1", true, PEER),
        ("1.2.3.4, 10.0.0.1", false, PEER),
    ] {
        check("http_x_client", trusted, recursive, &format!("X-Client: {list}"), expected);
    }
    // A client cannot put a line of its own behind that of the proxy.
    check("http_x_client", trusted, true, "X-Client: 6.6.6.6\nX-Client: 1.2.3.4", ("1.2.3.4", 0));
}
