//! Client hellos: complete, split, over several records, and invalid ones.

use super::{ClientHelloPeek, HELLO_BYTES_MAX, NotTlsError, parse};

fn vector(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

fn server_name(name: &[u8]) -> Vec<u8> {
    let names = [&[0][..], &vector(name)].concat();
    [&[0, 0][..], &vector(&vector(&names))].concat()
}

/// A client hello with these extensions, without record headers.
fn message(extensions: &[u8]) -> Vec<u8> {
    let body =
        [&[3, 3][..], &[7; 32], &[1, 9], &vector(&[0x13, 0x01]), &[1, 0], &vector(extensions)].concat();
    [&[1, 0][..], &vector(&body)].concat()
}

/// A message in records of at most `bytes_max` bytes.
fn records(message: &[u8], bytes_max: usize) -> Vec<u8> {
    message.chunks(bytes_max).flat_map(|part| [&[22, 3, 1][..], &vector(part)].concat()).collect()
}

/// The server name that is parsed.
type Read = Result<Option<&'static str>, NotTlsError>;

fn check(bytes: &[u8], expected: Read) {
    let found = parse(bytes);
    let expected = expected.map(|name| ClientHelloPeek::Complete(name.map(Box::from)));
    assert_eq!(found, expected, "{bytes:?}");
    if expected.is_ok() {
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]), Ok(ClientHelloPeek::Partial), "the first {cut} bytes");
        }
    }
}

#[test]
fn the_server_name_is_found_wherever_it_stands() {
    let other = [&[0, 10][..], &vector(&[1, 2, 3])].concat();
    let named = [other.clone(), server_name(b"Shop.Example.COM"), other.clone()].concat();
    let table: [(&[u8], Read); 8] = [
        (&named, Ok(Some("shop.example.com"))),
        (&server_name(b"a"), Ok(Some("a"))),
        (&other, Ok(None)),
        (&[], Ok(None)),
        (&server_name(b""), Err(NotTlsError)),
        (&server_name(b"a b"), Err(NotTlsError)),
        (&server_name(&[b'a'; 254]), Err(NotTlsError)),
        (&[0, 0, 0, 9, 0], Err(NotTlsError)),
    ];
    for (extensions, expected) in table {
        for bytes_max in [1, 7, 16384] {
            check(&records(&message(extensions), bytes_max), expected);
        }
    }
}

#[test]
fn non_tls_input_is_detected_early() {
    let mut longest = vec![22, 3, 1, 0x40, 0];
    longest.resize(HELLO_BYTES_MAX, 1);
    let table: [&[u8]; 8] = [
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-x",
        &[22, 2],
        &[22, 3, 1, 0, 0],
        &[22, 3, 1, 0xff, 0xff],
        &[22, 3, 1, 0, 9, 2],
        &[22, 3, 1, 0, 4, 1, 0xff, 0, 0],
        &longest,
    ];
    for bytes in table {
        assert_eq!(parse(bytes), Err(NotTlsError), "{bytes:?}");
    }
}

#[test]
fn other_records_may_follow_the_client_hello() {
    let hello = records(&message(&server_name(b"a")), 16384);
    for suffix in [&[20, 3, 3, 0, 1, 1][..], &[23, 3, 3, 0, 2, 0, 0], &[0], b"GET"] {
        let bytes = [&hello[..], suffix].concat();
        assert_eq!(parse(&bytes), Ok(ClientHelloPeek::Complete(Some("a".into()))), "{suffix:?}");
    }
}
