//! The TLS client hello, parsed only for its server name (RFC 8446 §4.1.2, RFC 6066 §3).
//!
//! Used by TLS passthrough. Decrypts nothing and writes nothing.

#[cfg(test)]
mod tests;

/// The longest client hello, in bytes, with its record headers.
pub const HELLO_BYTES_MAX: usize = 16 * 1024;

const RECORD_HANDSHAKE: u8 = 22;
const MESSAGE_CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const NAME_HOST: u8 = 0;
/// The longest DNS name, in bytes.
const NAME_BYTES_MAX: usize = 253;

/// The result of parsing the first bytes of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientHelloPeek {
    /// The client hello is incomplete.
    Partial,
    /// The client hello is complete; the server name, if any, is in lower case.
    Complete(Option<Box<str>>),
}

/// The connection does not begin with a client hello, or with one that exceeds [`HELLO_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection does not start with a TLS ClientHello")]
pub struct NotTlsError;

/// Parses the client hello in `bytes`, the first bytes of a connection.
pub fn parse(bytes: &[u8]) -> Result<ClientHelloPeek, NotTlsError> {
    let Some(message) = message(bytes)? else {
        return if bytes.len() >= HELLO_BYTES_MAX { Err(NotTlsError) } else { Ok(ClientHelloPeek::Partial) };
    };
    server_name(&message).map(ClientHelloPeek::Complete)
}

/// Reassembles the client hello from its records (RFC 8446 §5.1); `None` if it is incomplete.
fn message(bytes: &[u8]) -> Result<Option<Vec<u8>>, NotTlsError> {
    let mut rest = bytes;
    let mut gathered: Vec<u8> = Vec::new();
    loop {
        if gathered.first().is_some_and(|kind| *kind != MESSAGE_CLIENT_HELLO) {
            return Err(NotTlsError);
        }
        if let Some(length) = gathered.get(1..4) {
            let length = usize::from(length[0]) << 16 | usize::from(length[1]) << 8 | usize::from(length[2]);
            if length > HELLO_BYTES_MAX {
                return Err(NotTlsError);
            }
            if gathered.len() >= 4 + length {
                return Ok(Some(gathered[4..4 + length].to_vec()));
            }
        }
        // Checked after completeness: records behind a complete message may have other types, such as early
        // data.
        // The major version of records is 3 in all versions of TLS (RFC 8446 §5.1).
        if rest.first().is_some_and(|kind| *kind != RECORD_HANDSHAKE)
            || rest.get(1).is_some_and(|major| *major != 3)
        {
            return Err(NotTlsError);
        }
        let Some((header, after)) = rest.split_first_chunk::<5>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        // Empty records would allow an endless client hello.
        // Longer ones are not permitted (RFC 8446 §5.1).
        if length == 0 || length > HELLO_BYTES_MAX {
            return Err(NotTlsError);
        }
        let Some((fragment, after)) = after.split_at_checked(length) else {
            // Rejects other protocols before a whole record has arrived.
            let is_other =
                gathered.is_empty() && after.first().is_some_and(|one| *one != MESSAGE_CLIENT_HELLO);
            return if is_other { Err(NotTlsError) } else { Ok(None) };
        };
        gathered.extend_from_slice(fragment);
        rest = after;
    }
}

fn server_name(message: &[u8]) -> Result<Option<Box<str>>, NotTlsError> {
    let mut hello = ClientHelloReader(message);
    // Version and random.
    hello.take(2 + 32)?;
    // Session id, cipher suites and compression methods.
    hello.short_vector()?;
    hello.vector()?;
    hello.short_vector()?;
    // A hello without extensions is permitted (RFC 5246 §7.4.1.2).
    if hello.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = ClientHelloReader(hello.vector()?);
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let extension = extensions.vector()?;
        if kind == EXTENSION_SERVER_NAME {
            return host_name(extension);
        }
    }
    Ok(None)
}

fn host_name(extension: &[u8]) -> Result<Option<Box<str>>, NotTlsError> {
    let mut names = ClientHelloReader(ClientHelloReader(extension).vector()?);
    while !names.0.is_empty() {
        let kind = names.take(1)?[0];
        let name = names.vector()?;
        // RFC 6066 §3 defines no other type of name.
        if kind != NAME_HOST {
            continue;
        }
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte));
        let name = std::str::from_utf8(name).ok().filter(|_| is_name).ok_or(NotTlsError)?;
        // DNS names are compared without case (RFC 4343).
        return Ok(Some(name.to_ascii_lowercase().into()));
    }
    Ok(None)
}

/// Reads the fields of a message in order.
struct ClientHelloReader<'m>(&'m [u8]);

impl<'m> ClientHelloReader<'m> {
    fn take(&mut self, count: usize) -> Result<&'m [u8], NotTlsError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(NotTlsError)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u16, NotTlsError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Reads a vector with a length of one byte.
    fn short_vector(&mut self) -> Result<&'m [u8], NotTlsError> {
        let length = self.take(1)?[0];
        self.take(length.into())
    }

    /// Reads a vector with a length of two bytes.
    fn vector(&mut self) -> Result<&'m [u8], NotTlsError> {
        let length = self.number()?;
        self.take(length.into())
    }
}
