//! X.509 names as text.

use x509_parser::asn1_rs::{Any, Tag, ToDer};
use x509_parser::prelude::X509Name;

/// Formats a name, most specific part first (RFC 2253 §2.1), with escaped values (§2.4).
pub(super) fn rfc2253(name: &X509Name<'_>) -> String {
    let parts = name.iter_rdn().map(|part| {
        let pairs = part.iter().map(|pair| {
            let id = pair.attr_type().to_id_string();
            let key = SHORT_NAMES.iter().find(|(oid, _)| *oid == id).map_or(id.as_str(), |(_, name)| name);
            format!("{key}={}", value(pair.attr_value()))
        });
        pairs.collect::<Vec<_>>().join("+")
    });
    let mut parts: Vec<String> = parts.collect();
    parts.reverse();
    parts.join(",")
}

/// Formats a value as text, or as `#` with its DER in hex if the value is no text (RFC 4514 §2.4). Different
/// values never have the same form.
fn value(value: &Any<'_>) -> String {
    let bytes = value.data;
    let text = match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::NumericString | Tag::VisibleString => {
            std::str::from_utf8(bytes).ok().map(str::to_owned)
        }
        // UTF-16, big-endian (X.690 §8.23.7). The standard excludes surrogates; they are accepted as
        // elsewhere.
        Tag::BmpString => utf16(bytes),
        // T.61 in the standard, but Latin-1 in practice.
        Tag::TeletexString => Some(bytes.iter().copied().map(char::from).collect()),
        Tag::UniversalString => utf32(bytes),
        _ => None,
    };
    match text {
        Some(text) => escaped(&text),
        None => value
            .to_der_vec()
            .unwrap_or_else(|_| bytes.to_vec())
            .iter()
            .fold("#".to_owned(), |hex, byte| hex + &format!("{byte:02X}")),
    }
}

fn utf16(bytes: &[u8]) -> Option<String> {
    let (units, rest) = bytes.as_chunks::<2>();
    let units = units.iter().copied().map(u16::from_be_bytes);
    char::decode_utf16(units).collect::<Result<_, _>>().ok().filter(|_| rest.is_empty())
}

fn utf32(bytes: &[u8]) -> Option<String> {
    let (units, rest) = bytes.as_chunks::<4>();
    let units = units.iter().copied().map(|unit| char::from_u32(u32::from_be_bytes(unit)));
    units.collect::<Option<String>>().filter(|_| rest.is_empty())
}

const SHORT_NAMES: [(&str, &str); 13] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "GN"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Escapes a value. Control characters are escaped too, because the text is used in header fields.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, each) in value.chars().enumerate() {
        let is_edge_space = each == ' ' && (at == 0 || at == last);
        match each {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => out.extend(['\\', each]),
            '#' if at == 0 => out.push_str("\\#"),
            _ if is_edge_space => out.push_str("\\ "),
            _ if each.is_control() => out.push_str(&format!("\\{:02X}", u32::from(each))),
            _ => out.push(each),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Any, Tag, value};

    #[test]
    fn a_name_is_told_in_whichever_characters_it_is_written() {
        let check = |tag: Tag, bytes: &[u8], expected: &str| {
            assert_eq!(value(&Any::from_tag_and_data(tag, bytes)), expected, "{tag:?} {bytes:?}");
        };
        check(Tag::Utf8String, "zoë".as_bytes(), "zoë");
        check(Tag::PrintableString, b"bob", "bob");
        check(Tag::BmpString, b"\0b\0o\0b", "bob");
        check(Tag::BmpString, b"\x01\x61", "š");
        check(Tag::BmpString, b"\0,\0\n", r"\,\0A");
        check(Tag::TeletexString, b"M\xfcller", "Müller");
        check(Tag::UniversalString, b"\0\0\0b\0\x01\xf6\0", "b\u{1f600}");
        check(Tag::Utf8String, b"#a", r"\#a");
        check(Tag::Utf8String, b"", "");
        // Values that are no text still differ in their form.
        check(Tag::Utf8String, b"\xff", "#0C01FF");
        check(Tag::BmpString, b"\0b\0", "#1E03006200");
        check(Tag::BmpString, b"\xd8\x00", "#1E02D800");
        check(Tag::UniversalString, b"\0\x11\0\0", "#1C0400110000");
        check(Tag::OctetString, b"ab", "#04026162");
    }
}
