use super::{ConnectProtocol, take_protocol};

const RAW: &[u8] = b"\x27\x02:protocol\x09websocket";
const CODED: &[u8] = b"\x2f\x00\xb9\x5d\x87\x49\xc8\x7a\x3f\x87\xf0\x58\xd0\x72\x75\x2a\x7f";
/// CONNECT, https, an authority by indexed name, a path with a post-Base index, a long field.
const BEFORE: &[u8] = b"\0\0\xcf\xd7\x50\x06a.test\x10\x00\x01x";
const BEHIND: &[u8] = b"\x23abc\x03def\x51\x02/c";

fn check(lines: &[&[u8]], expected: Option<ConnectProtocol>) {
    let section = [BEFORE, &lines.concat(), BEHIND].concat();
    let left = [BEFORE, BEHIND].concat();
    assert_eq!(take_protocol(&section), expected.map(|protocol| (left, protocol)), "{lines:?}");
}

#[test]
fn the_line_is_found_in_every_coding() {
    check(&[RAW], Some(ConnectProtocol::WebSocket));
    check(&[CODED], Some(ConnectProtocol::WebSocket));
    check(&[b"\x2f\x00\xb9\x5d\x87\x49\xc8\x7a\x3f\x09websocket"], Some(ConnectProtocol::WebSocket));
    // The never-indexed bit changes nothing.
    check(&[b"\x37\x02:protocol\x09websocket"], Some(ConnectProtocol::WebSocket));
    check(&[b"\x27\x02:protocol\x0cwebtransport"], Some(ConnectProtocol::Other));
    check(&[b"\x27\x02:protocol\x00"], Some(ConnectProtocol::Other));
    check(&[b"\x27\x02:protocol\x09WebSocket"], Some(ConnectProtocol::Other));
}

#[test]
fn missing_or_duplicate_names_pass_unchanged() {
    check(&[], None);
    check(&[b"\x27\x02:protocoI\x09websocket"], None);
    // As a value the text does not count.
    check(&[b"\x23abc\x09:protocol"], None);
    check(&[RAW, CODED], None);
}

#[test]
fn numbers_may_be_long() {
    let long = [b"\x23abc\x7f\x81\x01".as_slice(), &[b'x'; 0x7f + 0x81]].concat();
    let section = [BEFORE, &long, RAW].concat();
    assert_eq!(take_protocol(&section), Some(([BEFORE, &long].concat(), ConnectProtocol::WebSocket)));
}

#[test]
fn truncated_input_has_no_name() {
    let section = [BEFORE, RAW, BEHIND].concat();
    let whole = BEFORE.len() + RAW.len();
    for length in 0..whole {
        assert_eq!(take_protocol(&section[..length]), None, "{length} bytes");
    }
    assert!(take_protocol(&section[..whole]).is_some());
    assert_eq!(take_protocol(b"\0\0\xff\xff\xff\xff\xff\xff\xff"), None);
}
