//! The first message of a TLS client, read only for the server name it asks for (RFC 8446 §4.1.2, RFC 6066
//! §3).
//!
//! Decrypts nothing and answers nothing: whoever passes TLS on unread finds out where to.

#[cfg(test)]
mod tests;

/// The longest first message that is read, in bytes with its record headers.
pub const HELLO_BYTES_MAX: usize = 16 * 1024;

const RECORD_HANDSHAKE: u8 = 22;
const MESSAGE_CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const NAME_HOST: u8 = 0;
/// A host name as DNS has it, in bytes.
const NAME_BYTES_MAX: usize = 253;

/// What stands at the beginning of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientHelloPeek {
    /// Not all of it is there yet.
    Partial,
    /// The whole message, with the server name in lower case if it has one.
    Complete(Option<Box<str>>),
}

/// The connection does not begin with a TLS client's first message, or with one that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection does not start with a TLS ClientHello")]
pub struct NotTlsError;

/// Reads the first message of a connection whose first bytes are `bytes`.
pub fn parse(bytes: &[u8]) -> Result<ClientHelloPeek, NotTlsError> {
    let Some(message) = message(bytes)? else {
        return if bytes.len() >= HELLO_BYTES_MAX { Err(NotTlsError) } else { Ok(ClientHelloPeek::Partial) };
    };
    server_name(&message).map(ClientHelloPeek::Complete)
}

/// The body of the first message, put together from the records it spans; `None` where more must come.
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
        // Only now, since what follows a whole message may be of another kind: early data, for one.
        if rest.first().is_some_and(|kind| *kind != RECORD_HANDSHAKE)
            || rest.get(1).is_some_and(|major| *major != 3)
        {
            return Err(NotTlsError);
        }
        let Some((header, after)) = rest.split_first_chunk::<5>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        // Empty records would never come to an end.
        if length == 0 || length > HELLO_BYTES_MAX {
            return Err(NotTlsError);
        }
        let Some((fragment, after)) = after.split_at_checked(length) else {
            // What is not TLS is told before a record of it is complete.
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
    // The session, cipher suites and compression methods offered.
    hello.short_vector()?;
    hello.vector()?;
    hello.short_vector()?;
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
        if kind != NAME_HOST {
            continue;
        }
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte));
        let name = std::str::from_utf8(name).ok().filter(|_| is_name).ok_or(NotTlsError)?;
        return Ok(Some(name.to_ascii_lowercase().into()));
    }
    Ok(None)
}

/// Takes a message apart from its front.
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

    /// Bytes after their number in one byte.
    fn short_vector(&mut self) -> Result<&'m [u8], NotTlsError> {
        let length = self.take(1)?[0];
        self.take(length.into())
    }

    /// Bytes after their number in two bytes.
    fn vector(&mut self) -> Result<&'m [u8], NotTlsError> {
        let length = self.number()?;
        self.take(length.into())
    }
}
