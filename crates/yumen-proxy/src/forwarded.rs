//! What peers say of how a request came to them, and `Forwarded` (RFC 7239), which tells endpoints. Knows no
//! settings.

use std::net::IpAddr;

use yumen_base::IpSet;
use yumen_http::{FieldLine, Fields, KnownField};
use yumen_plugin::Exchange;

/// What anybody can say, and only trusted peers are believed.
const CLAIMS: [KnownField; 5] = [
    KnownField::XForwardedProto,
    KnownField::XForwardedHost,
    KnownField::XForwardedPort,
    KnownField::Forwarded,
    KnownField::XForwardedFor,
];

/// Takes away what a peer that is not among `trusted` says of how the request came to it, so that neither routing nor
/// plugins nor endpoints take it for the truth. Its `X-Forwarded-For` goes only where others are trusted: without
/// such a boundary everybody's is passed on, as in APISIX.
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

/// What every endpoint is told by the gateway.
const OURS: [KnownField; 5] = [
    KnownField::XForwardedFor,
    KnownField::XForwardedHost,
    KnownField::XForwardedPort,
    KnownField::XForwardedProto,
    KnownField::XRealIp,
];

/// Whether a client says what the gateway says, under a name that CGI and what follows it take for the same, such as
/// `X_Real_IP`. Asked of each field that is sent: most have another length or begin with another letter.
#[inline]
pub(crate) fn is_false(fields: &Fields, field: &FieldLine) -> bool {
    is_ours_respelt(fields.name(field)) && field.is_received()
}

#[inline]
fn is_ours_respelt(name: &[u8]) -> bool {
    matches!(name.len(), 9 | 15..=17)
        && matches!(name[0], b'x' | b'X')
        && OURS.iter().any(|ours| ours.is_alike(name))
}

/// Writes the field: what trusted peers said before, then an element of our own. A line that leaves a quote open would
/// take our own into it: such are left out.
pub(crate) fn write(out: &mut Vec<u8>, ex: &Exchange<'_>) {
    out.extend_from_slice(b"Forwarded: ");
    for said in ex.request.fields.all_known(KnownField::Forwarded).filter(|said| is_well_quoted(said)) {
        out.extend_from_slice(said);
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(b"for=");
    match ex.remote_ip {
        IpAddr::V4(ip) => out.extend_from_slice(ip.to_string().as_bytes()),
        IpAddr::V6(ip) => out.extend_from_slice(format!("\"[{ip}]\"").as_bytes()),
    }
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

/// Whether quotes stand only around whole values, and each ends in its line (RFC 7239 §4, RFC 9110 §5.6.4). What else
/// stands there readers take in ways of their own, and some of them in an open quote.
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
    fn a_line_whose_quotes_are_not_around_values_is_told_from_others() {
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
        let is_false = |name: &str| is_ours_respelt(name.as_bytes());
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
