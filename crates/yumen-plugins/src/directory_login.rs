//! Parts that the plugins of directories share: addresses, names, and passwords in fields of the request.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Deserializer};
use yumen_config::schema::InvalidSettings;
use yumen_config::url;

/// Port of LDAP, also with StartTLS.
pub(crate) const LDAP_PORT: u16 = 389;
/// Port of LDAP over TLS.
pub(crate) const LDAPS_PORT: u16 = 636;

/// Parses `host`, `host:port` or an IPv6 address in brackets.
pub(crate) fn parse_address(
    path: &str,
    written: &str,
    default_port: u16,
) -> Result<(String, u16), InvalidSettings> {
    let refused = |why: &str| {
        InvalidSettings::at(
            path,
            format!("{why}; write the host and, if needed, the port, such as ldap.test:389"),
        )
    };
    if written.contains("://") {
        return Err(refused("a scheme is not part of the address"));
    }
    let (host, port) = match written.rsplit_once(':') {
        // In an IPv6 address in brackets, the last colon begins no port.
        Some((host, port)) if !written.ends_with(']') => {
            (host, url::port(port).ok_or_else(|| refused("the port is invalid"))?)
        }
        _ => (written, default_port),
    };
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').ok_or_else(|| refused("a bracket is missing"))?,
        None if host.contains(':') => return Err(refused("an IPv6 address needs brackets")),
        None => host,
    };
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'@' | b'?' | b'#' | b',');
    match !host.is_empty() && host.bytes().all(is_plain) {
        true => Ok((host.to_owned(), port)),
        false => Err(refused("the host is invalid")),
    }
}

/// Writes a value of a distinguished name so that no character of it is syntax (RFC 4514 §2.4).
pub(crate) fn escape_dn_value(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, character) in value.chars().enumerate() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => out.extend(['\\', character]),
            '#' if at == 0 => out.push_str("\\#"),
            ' ' if at == 0 || at == last => out.push_str("\\ "),
            control if control < ' ' || control == '\x7f' => {
                out.push_str(&format!("\\{:02x}", control as u32))
            }
            other => out.push(other),
        }
    }
    out
}

/// The form of a distinguished name by which names are compared: attribute types in lower case, no spaces around
/// separators, and one way to escape (RFC 4514 §2.4 has several). A text that is no name stays as it is.
pub(crate) fn canonical_dn(written: &str) -> String {
    read_dn(written).unwrap_or_else(|| written.to_owned())
}

/// [`canonical_dn`] for the names of consumers.
pub(crate) fn deserialize_dn<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    String::deserialize(source).map(|written| canonical_dn(&written))
}

fn read_dn(written: &str) -> Option<String> {
    let (mut out, mut rest) = (String::with_capacity(written.len()), written);
    loop {
        let (kind, after) = rest.split_once('=')?;
        let kind = kind.trim();
        if kind.is_empty() || kind.contains([',', '+', '\\']) {
            return None;
        }
        out.push_str(&kind.to_ascii_lowercase());
        out.push('=');
        let (value, length) = read_dn_value(after.as_bytes())?;
        out.push_str(&escape_dn_value(&value));
        let Some(separator) = after[length..].chars().next() else { return Some(out) };
        out.push(separator);
        rest = &after[length + 1..];
    }
}

/// The value at the begin of `bytes` and the length of its text, which ends before a comma or plus sign.
fn read_dn_value(bytes: &[u8]) -> Option<(String, usize)> {
    let hex = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut at = bytes.iter().position(|byte| *byte != b' ').unwrap_or(bytes.len());
    let (mut value, mut kept) = (Vec::new(), 0);
    loop {
        match bytes.get(at) {
            None | Some(b',' | b'+') => break,
            Some(b'\\') => {
                let (first, second) = (hex(bytes.get(at + 1)), hex(bytes.get(at + 2)));
                if let (Some(first), Some(second)) = (first, second) {
                    value.push((first << 4 | second) as u8);
                    at += 3;
                } else {
                    value.push(*bytes.get(at + 1)?);
                    at += 2;
                }
                kept = value.len();
            }
            Some(byte) => {
                value.push(*byte);
                at += 1;
                // Spaces at the end count only if they are escaped.
                if *byte != b' ' {
                    kept = value.len();
                }
            }
        }
    }
    value.truncate(kept);
    Some((String::from_utf8(value).ok()?, at))
}

/// A user name and a password, neither of them empty.
#[derive(PartialEq, Eq)]
pub(crate) struct UserPassword {
    pub(crate) username: String,
    pub(crate) password: String,
}

impl std::fmt::Debug for UserPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The password must not appear in logs.
        f.debug_struct("UserPassword").field("username", &self.username).finish_non_exhaustive()
    }
}

impl UserPassword {
    /// Reads the value of a field: the scheme, spaces, and `name:password` in Base64 (RFC 7617 §2). The scheme is
    /// case-insensitive (RFC 9110 §11.1). Names and passwords of LDAP are UTF-8.
    ///
    /// An empty password is `None`: a directory takes a bind with it as anonymous and reports success
    /// (RFC 4513 §5.1.2). A NUL is `None` too: servers in C would end the name there.
    pub(crate) fn read(field: &[u8], scheme: &str) -> Option<UserPassword> {
        // The Base64 decoder of NGINX, which APISIX uses, checks neither padding nor trailing bits.
        const TOLERANT: GeneralPurpose = GeneralPurpose::new(
            &STANDARD,
            GeneralPurposeConfig::new()
                .with_decode_allow_trailing_bits(true)
                .with_decode_padding_mode(DecodePaddingMode::Indifferent),
        );
        let (found, rest) = field.split_at_checked(scheme.len())?;
        if !found.eq_ignore_ascii_case(scheme.as_bytes()) || !matches!(rest.first()?, b' ' | b'\t') {
            return None;
        }
        let decoded = String::from_utf8(TOLERANT.decode(rest.trim_ascii()).ok()?).ok()?;
        // Command line tools often encode a line end as well.
        let decoded = decoded.trim_end_matches(['\r', '\n']);
        let (username, password) = decoded.split_once(':')?;
        let username = username.trim();
        let is_usable = !username.is_empty() && !password.is_empty() && !decoded.contains('\0');
        is_usable.then(|| UserPassword { username: username.to_owned(), password: password.to_owned() })
    }
}

#[cfg(test)]
mod tests;
