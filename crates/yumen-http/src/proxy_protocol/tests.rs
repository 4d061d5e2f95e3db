//! PROXY headers: parsing, rejection, and round trips.

use super::{
    HEADER_BYTES_MAX, ProxyAddresses, ProxyHeader, ProxyHeaderError, ProxyVersion, V2_START, parse, write,
};

fn v2(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
    let length = (addresses.len() as u16).to_be_bytes();
    [&V2_START[..], &[command, family], &length, addresses].concat()
}

/// A header with `source>destination`, or none; then payload bytes.
fn check(header: &[u8], expected: Result<&str, ProxyHeaderError>) {
    let shown = String::from_utf8_lossy(header).into_owned();
    let bytes = [header, b"GET /"].concat();
    let found = parse(&bytes).map(|found| match found {
        ProxyHeader::Partial => "partial".to_owned(),
        ProxyHeader::Complete { used, ends } => {
            assert_eq!(used, header.len(), "{shown}");
            ends.map_or(String::new(), |ends| format!("{}>{}", ends.source, ends.destination))
        }
    });
    assert_eq!(found, expected.map(str::to_owned), "{shown}");
    if expected.is_ok() {
        for cut in 0..header.len() {
            assert_eq!(parse(&header[..cut]), Ok(ProxyHeader::Partial), "{cut} bytes of {shown}");
        }
    }
}

#[test]
fn headers_are_distinguished_from_other_bytes() {
    use ProxyHeaderError::{Absent, Malformed, TooLong};
    let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0x04, 0xd2, 0x01, 0xbb];
    let mut v6 = [0; 36];
    v6[15] = 1;
    v6[31] = 2;
    v6[33] = 7;
    v6[35] = 8;
    let with_extension = [&v4[..], &[0x05, 0, 2, 9, 9]].concat();
    let table: Vec<(Vec<u8>, Result<&str, ProxyHeaderError>)> = vec![
        (b"PROXY TCP4 192.0.2.1 198.51.100.2 1234 443\r\n".into(), Ok("192.0.2.1:1234>198.51.100.2:443")),
        (b"PROXY TCP6 2001:db8::1 ::1 1 0\r\n".into(), Ok("[2001:db8::1]:1>[::1]:0")),
        (b"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n".into(), Ok("192.0.2.1:1>[::1]:2")),
        (b"PROXY UNKNOWN\r\n".into(), Ok("")),
        (b"PROXY UNKNOWN some thing else\r\n".into(), Ok("")),
        (v2(0x21, 0x11, &v4), Ok("192.0.2.1:1234>198.51.100.2:443")),
        (v2(0x21, 0x12, &v4), Ok("192.0.2.1:1234>198.51.100.2:443")),
        (v2(0x21, 0x21, &v6), Ok("[::1]:7>[::2]:8")),
        (v2(0x21, 0x11, &with_extension), Ok("192.0.2.1:1234>198.51.100.2:443")),
        (v2(0x20, 0x00, &[]), Ok("")),
        (v2(0x20, 0x11, &v4), Ok("")),
        (v2(0x21, 0x31, &[1; 216]), Ok("")),
        (b"PROXY TCP4 ::1 ::1 1 2\r\n".into(), Err(Malformed)),
        (b"PROXY TCP4 192.0.2.1 198.51.100.2 1234\r\n".into(), Err(Malformed)),
        (b"PROXY TCP4 192.0.2.1 198.51.100.2 1234 443 9\r\n".into(), Err(Malformed)),
        (b"PROXY TCP4 192.0.2.1  198.51.100.2 1234 443\r\n".into(), Err(Malformed)),
        (b"PROXY TCP4 192.0.2.1 198.51.100.2 01 443\r\n".into(), Err(Malformed)),
        (b"PROXY TCP4 192.0.2.1 198.51.100.2 +1 443\r\n".into(), Err(Malformed)),
        (b"PROXY TCP4 192.0.2.1 198.51.100.2 1 65536\r\n".into(), Err(Malformed)),
        (b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2\n".into(), Err(Malformed)),
        (b"PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n".into(), Err(Malformed)),
        ([&b"PROXY UNKNOWN "[..], &[b'x'; 100], b"\r\n"].concat(), Err(Malformed)),
        (v2(0x11, 0x11, &v4), Err(Malformed)),
        (v2(0x22, 0x11, &v4), Err(Malformed)),
        (v2(0x21, 0x13, &v4), Err(Malformed)),
        (v2(0x21, 0x11, &v4[..11]), Err(Malformed)),
        (v2(0x21, 0x21, &v4), Err(Malformed)),
        (v2(0x21, 0x11, &[0; HEADER_BYTES_MAX]), Err(TooLong)),
        (b"GET / HTTP/1.1\r\n".into(), Err(Absent)),
        (b"PROXYTCP4".into(), Err(Absent)),
    ];
    for (header, expected) in table {
        check(&header, expected);
    }
}

#[test]
fn local_command_has_no_addresses() {
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let header = super::own(version);
        assert_eq!(parse(&header), Ok(ProxyHeader::Complete { used: header.len(), ends: None }));
    }
}

#[test]
fn written_headers_read_back() {
    for (source, destination) in [
        ("192.0.2.1:1234", "198.51.100.2:443"),
        ("[2001:db8::1]:1", "[::1]:65535"),
        ("192.0.2.1:1", "[::1]:2"),
        ("[::ffff:192.0.2.1]:1", "198.51.100.2:443"),
    ] {
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            let ends =
                ProxyAddresses { source: source.parse().unwrap(), destination: destination.parse().unwrap() };
            let mut header = Vec::new();
            write(&mut header, version, &ends);
            let Ok(ProxyHeader::Complete { used, ends: Some(read) }) = parse(&header) else {
                panic!("{version:?} of {source} is not read");
            };
            assert_eq!(used, header.len());
            assert_eq!(read.source.ip(), ends.source.ip().to_canonical());
            assert_eq!(read.destination, ends.destination);
            assert_eq!(read.source.port(), ends.source.port());
        }
    }
}
