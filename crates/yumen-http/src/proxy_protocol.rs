//! The PROXY protocol, versions 1 and 2: the addresses of a connection as sent by the proxy in front of the
//! gateway.
//!
//! Independent of sockets or trusted proxies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

#[cfg(test)]
mod tests;

/// The longest header, in bytes: version 2 with the extensions behind the addresses.
pub const HEADER_BYTES_MAX: usize = 4096;

/// The longest header of version 1, in bytes, with its CRLF.
const V1_BYTES_MAX: usize = 107;
const V1_START: &[u8] = b"PROXY ";
const V2_START: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, and length.
const V2_FIXED_BYTES: usize = 16;

/// The addresses of the connection that the proxy accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyAddresses {
    /// The address of the client.
    pub source: SocketAddr,
    /// The address that the client connected to.
    pub destination: SocketAddr,
}

/// The result of parsing the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyHeader {
    /// The header is incomplete.
    Partial,
    /// The header is complete.
    Complete {
        /// Bytes of the header; the payload of the connection follows.
        used: usize,
        /// The addresses; `None` for a connection of the proxy itself, or an unknown family.
        ends: Option<ProxyAddresses>,
    },
}

/// The version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyVersion {
    /// Version 1, a line of text.
    V1,
    /// Version 2, binary.
    V2,
}

/// The reason why no header was parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ProxyHeaderError {
    #[error("the connection does not start with a PROXY header")]
    Absent,
    #[error("the PROXY header is malformed")]
    Malformed,
    #[error("the PROXY header is longer than {HEADER_BYTES_MAX} bytes")]
    TooLong,
}

/// Parses the header at the front of `bytes`, the first bytes of a connection.
pub fn parse(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    if starts_alike(bytes, V1_START) {
        return parse_v1(bytes);
    }
    if starts_alike(bytes, V2_START) {
        return parse_v2(bytes);
    }
    Err(ProxyHeaderError::Absent)
}

fn starts_alike(bytes: &[u8], start: &[u8]) -> bool {
    bytes.iter().zip(start).all(|(a, b)| a == b)
}

fn parse_v1(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    let window = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        let is_full = window.len() == V1_BYTES_MAX;
        return if is_full { Err(ProxyHeaderError::Malformed) } else { Ok(ProxyHeader::Partial) };
    };
    let line = std::str::from_utf8(&window[..end]).ok().and_then(|line| line.strip_suffix('\r'));
    let mut words = line.ok_or(ProxyHeaderError::Malformed)?.split(' ').skip(1);
    let family = words.next();
    let ends = match family {
        // The rest of an UNKNOWN header is to be ignored.
        Some("UNKNOWN") => None,
        Some("TCP4" | "TCP6") => {
            let words = [words.next(), words.next(), words.next(), words.next(), words.next()];
            let [Some(source), Some(destination), Some(source_port), Some(port), None] = words else {
                return Err(ProxyHeaderError::Malformed);
            };
            let is_v4 = family == Some("TCP4");
            Some(ProxyAddresses {
                source: SocketAddr::new(address(source, is_v4)?, number(source_port)?),
                destination: SocketAddr::new(address(destination, is_v4)?, number(port)?),
            })
        }
        _ => return Err(ProxyHeaderError::Malformed),
    };
    Ok(ProxyHeader::Complete { used: end + 1, ends })
}

fn address(word: &str, is_v4: bool) -> Result<IpAddr, ProxyHeaderError> {
    let address = match is_v4 {
        true => word.parse().map(IpAddr::V4),
        // IPv4-mapped addresses become IPv4, so that rules for IPv4 addresses match.
        false => word.parse::<Ipv6Addr>().map(|address| IpAddr::V6(address).to_canonical()),
    };
    address.map_err(|_| ProxyHeaderError::Malformed)
}

/// Parses a port without sign or leading zeros.
fn number(word: &str) -> Result<u16, ProxyHeaderError> {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| is_plain).ok_or(ProxyHeaderError::Malformed)
}

fn parse_v2(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    let Some((fixed, rest)) = bytes.split_at_checked(V2_FIXED_BYTES) else { return Ok(ProxyHeader::Partial) };
    let (command, family) = (fixed[12], fixed[13]);
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    // A receiver rejects other versions and commands, as the specification requires.
    if !matches!(command, 0x20 | 0x21) {
        return Err(ProxyHeaderError::Malformed);
    }
    let used = V2_FIXED_BYTES + length;
    if used > HEADER_BYTES_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    let Some(addresses) = rest.get(..length) else { return Ok(ProxyHeader::Partial) };
    let ends = match (command, family) {
        // LOCAL command: a connection of the proxy itself, such as a health check.
        (0x20, _) => None,
        (_, 0x11 | 0x12) => Some(ends_v4(addresses).ok_or(ProxyHeaderError::Malformed)?),
        (_, 0x21 | 0x22) => Some(ends_v6(addresses).ok_or(ProxyHeaderError::Malformed)?),
        // Unspecified family, and Unix domain sockets.
        (_, 0x00 | 0x31 | 0x32) => None,
        _ => return Err(ProxyHeaderError::Malformed),
    };
    Ok(ProxyHeader::Complete { used, ends })
}

fn ends_v4(addresses: &[u8]) -> Option<ProxyAddresses> {
    let (source, rest) = addresses.split_first_chunk::<4>()?;
    let (destination, rest) = rest.split_first_chunk::<4>()?;
    ends(Ipv4Addr::from(*source).into(), Ipv4Addr::from(*destination).into(), rest)
}

fn ends_v6(addresses: &[u8]) -> Option<ProxyAddresses> {
    let (source, rest) = addresses.split_first_chunk::<16>()?;
    let (destination, rest) = rest.split_first_chunk::<16>()?;
    let address = |octets: &[u8; 16]| IpAddr::from(*octets).to_canonical();
    ends(address(source), address(destination), rest)
}

fn ends(source: IpAddr, destination: IpAddr, ports: &[u8]) -> Option<ProxyAddresses> {
    let (source_port, rest) = ports.split_first_chunk::<2>()?;
    // Extensions may follow the ports.
    let (port, _) = rest.split_first_chunk::<2>()?;
    Some(ProxyAddresses {
        source: SocketAddr::new(source, u16::from_be_bytes(*source_port)),
        destination: SocketAddr::new(destination, u16::from_be_bytes(*port)),
    })
}

/// Writes the header of a TCP connection.
pub fn write(out: &mut Vec<u8>, version: ProxyVersion, ends: &ProxyAddresses) {
    let (source, destination) = (ends.source.ip().to_canonical(), ends.destination.ip().to_canonical());
    let (source_port, port) = (ends.source.port(), ends.destination.port());
    match (version, source, destination) {
        (ProxyVersion::V1, IpAddr::V4(source), IpAddr::V4(destination)) => {
            let line = format!("PROXY TCP4 {source} {destination} {source_port} {port}\r\n");
            out.extend_from_slice(line.as_bytes());
        }
        (ProxyVersion::V1, source, destination) => {
            // The header has a single family, so mixed addresses are written as IPv6.
            let (source, destination) = (to_v6(source), to_v6(destination));
            let line = format!("PROXY TCP6 {source} {destination} {source_port} {port}\r\n");
            out.extend_from_slice(line.as_bytes());
        }
        (ProxyVersion::V2, source, destination) => {
            out.extend_from_slice(V2_START);
            match (source, destination) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => {
                    out.extend_from_slice(&[0x21, 0x11, 0, 12]);
                    out.extend_from_slice(&source.octets());
                    out.extend_from_slice(&destination.octets());
                }
                (source, destination) => {
                    out.extend_from_slice(&[0x21, 0x21, 0, 36]);
                    out.extend_from_slice(&to_v6(source).octets());
                    out.extend_from_slice(&to_v6(destination).octets());
                }
            }
            out.extend_from_slice(&source_port.to_be_bytes());
            out.extend_from_slice(&port.to_be_bytes());
        }
    }
}

/// The header of a connection that the gateway makes for itself, such as a health check.
pub fn own(version: ProxyVersion) -> Vec<u8> {
    match version {
        ProxyVersion::V1 => b"PROXY UNKNOWN\r\n".to_vec(),
        ProxyVersion::V2 => [&V2_START[..], &[0x20, 0, 0, 0]].concat(),
    }
}

fn to_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
