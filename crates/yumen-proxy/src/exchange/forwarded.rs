//! Trust in forwarding fields of peers, and the `Forwarded` field for endpoints (RFC 7239).
//!
//! Must not depend on settings.

use std::net::IpAddr;

use yumen_base::IpSet;
use yumen_http::{FieldLine, Fields, KnownField};
use yumen_plugin::Exchange;

/// Forwarding fields that any client can set; only those of trusted peers are kept.
const CLAIMS: [KnownField; 5] = [
    KnownField::XForwardedProto,
    KnownField::XForwardedHost,
    KnownField::XForwardedPort,
    KnownField::Forwarded,
    KnownField::XForwardedFor,
];

/// Removes the forwarding fields of a peer that is not in `trusted`, so that routing, plugins and endpoints
/// do not rely on them. `X-Forwarded-For` is removed only if `trusted` is not empty: otherwise it is
/// forwarded, as in APISIX.
#[inline]
pub(crate) fn distrust(fields: &mut Fields, trusted: &IpSet) {
    if fields.may_have_any(&CLAIMS) {
        take_away(fields, !trusted.is_empty());
    }
}

#[cold]
fn take_away(fields: &mut Fields, has_boundary: bool) {
    for claim in CLAIMS {
        if fields.may_have_any(&[claim]) && (claim != KnownField::XForwardedFor || has_boundary) {
            fields.remove(claim.name());
        }
    }
}

/// Fields that the gateway sends to every endpoint.
const OURS: [KnownField; 5] = [
    KnownField::XForwardedFor,
    KnownField::XForwardedHost,
    KnownField::XForwardedPort,
    KnownField::XForwardedProto,
    KnownField::XRealIp,
];

/// Whether a client's field imitates one of the gateway under a name that CGI does not distinguish, such as
/// `X_Real_IP`. Called for each field: most differ in length or first letter.
#[inline]
pub(crate) fn is_false(fields: &Fields, field: &FieldLine) -> bool {
    is_respelt_gateway_field(fields.name(field)) && field.is_received()
}

#[inline]
fn is_respelt_gateway_field(name: &[u8]) -> bool {
    matches!(name.len(), 9 | 15..=17)
        && matches!(name[0], b'x' | b'X')
        && OURS.iter().any(|ours| ours.is_alike(name))
}

/// Writes the field: elements of trusted peers, then the gateway's. A line with an open quote is omitted,
/// because it would absorb the gateway's element.
pub(crate) fn write(out: &mut Vec<u8>, ex: &Exchange<'_>) {
    out.extend_from_slice(b"Forwarded: ");
    for value in ex.request.fields.all_known(KnownField::Forwarded).filter(|value| is_well_quoted(value)) {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(b"for=");
    match ex.client.ip {
        IpAddr::V4(ip) => out.extend_from_slice(ip.to_string().as_bytes()),
        // RFC 7239 §6: an IPv6 address is bracketed and therefore quoted.
        IpAddr::V6(ip) => out.extend_from_slice(format!("\"[{ip}]\"").as_bytes()),
    }
    // Quoted, because the colon before a port is not allowed in a token (RFC 7239 §4).
    out.extend_from_slice(b";host=\"");
    for byte in ex.request.authority() {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.extend_from_slice(b"\";proto=");
    out.extend_from_slice(ex.client.scheme().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Whether quotes enclose whole values only and close in their line (RFC 7239 §4, RFC 9110 §5.6.4). Parsers
/// disagree on any other quote, and some leave it open.
fn is_well_quoted(line: &[u8]) -> bool {
    let (mut quoted, mut escaped, mut before) = (false, false, b',');
    for byte in line.iter().copied() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' if quoted => (quoted, before) = (false, byte),
            _ if quoted => {}
            b' ' | b'\t' => {}
            b'"' if before == b'=' => quoted = true,
            b'"' | b'\\' => return false,
            _ if before == b'"' && !matches!(byte, b';' | b',') => return false,
            _ => before = byte,
        }
    }
    !quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misplaced_quotes_are_detected() {
        for line in [
            "",
            "for=a",
            r#"x="""#,
            r#"x = "a" ; y= "b" "#,
            r#"x="a\"b""#,
            r#"x="a\\";y=c"#,
            r#"x="a", y="b""#,
            r#"x="a,b;\ " ,y=d"#,
        ] {
            assert!(is_well_quoted(line.as_bytes()), "{line}");
        }
        for line in [
            r#"""#,
            r#"x=", for=a"#,
            r#"x="a\""#,
            r#"x="a" y="b""#,
            r#"x="a"b"#,
            r#"x"=""#,
            r#"x=a"b""#,
            r#"x=\""#,
            r"x=a\",
            r#"x="\", for=a"#,
            r#"x="\ "", for=a"#,
            r#"x=", for=a;host="b\"c""#,
        ] {
            assert!(!is_well_quoted(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn only_other_spellings_of_what_the_gateway_says_are_false() {
        assert!(OURS.iter().all(|ours| matches!(ours.name().len(), 9 | 15..=17)), "others are not looked at");
        let is_false = |name: &str| is_respelt_gateway_field(name.as_bytes());
        for name in
            ["X_Forwarded_For", "x_forwarded-HOST", "X-Forwarded_Port", "x.forwarded.proto", "X_REAL_IP"]
        {
            assert!(is_false(name), "{name}");
        }
        for name in ["X_Forwarded_Foo", "Y_Real_IP", "X_Real_I", "X_Forwarded_Prefix", "Accept_Language"] {
            assert!(!is_false(name), "{name}");
        }
    }
}
