//! Messages of LDAP (RFC 4511) in BER: the few that authentication needs.
//!
//! Pure. Reads foreign bytes without recursion: the depth of a message is that of the parser.

/// Maximum size of a message in bytes. Entries come without attributes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 * 1024;

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const ENUMERATED: u8 = 0x0a;
const SEQUENCE: u8 = 0x30;

const BIND_REQUEST: u8 = 0x60;
const BIND_RESPONSE: u8 = 0x61;
const SEARCH_REQUEST: u8 = 0x63;
const SEARCH_ENTRY: u8 = 0x64;
const SEARCH_DONE: u8 = 0x65;
const SEARCH_REFERENCE: u8 = 0x73;
const EXTENDED_REQUEST: u8 = 0x77;
const EXTENDED_RESPONSE: u8 = 0x78;

/// The name of StartTLS (RFC 4511 §4.14).
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";
/// Stands for "no attributes" (RFC 4511 §4.5.1.8).
const NO_ATTRIBUTES: &[u8] = b"1.1";

/// A request to search one entry below `base` whose `attribute` equals `value`.
pub(crate) struct SearchRequest<'s> {
    pub(crate) base: &'s str,
    pub(crate) attribute: &'s str,
    pub(crate) value: &'s str,
    pub(crate) size_limit: u32,
    pub(crate) time_limit_s: u32,
}

/// An element: tag, length, content.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match length {
        0..=0x7f => out.push(length as u8),
        _ => {
            let bytes = (length as u32).to_be_bytes();
            let skipped = bytes.iter().take_while(|byte| **byte == 0).count();
            out.push(0x80 | (bytes.len() - skipped) as u8);
            out.extend_from_slice(&bytes[skipped..]);
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

fn integer(tag: u8, value: u32) -> Vec<u8> {
    // The leading byte keeps the number positive.
    let bytes = u64::from(value).to_be_bytes();
    let mut skipped = bytes.iter().take_while(|byte| **byte == 0).count().min(7);
    if bytes[skipped] & 0x80 != 0 {
        skipped -= 1;
    }
    element(tag, &[&bytes[skipped..]])
}

fn message(id: u32, operation: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[&integer(INTEGER, id), operation])
}

/// A simple bind (RFC 4511 §4.2).
pub(crate) fn bind(id: u32, dn: &str, password: &str) -> Vec<u8> {
    let parts =
        [integer(INTEGER, 3), element(OCTET_STRING, &[dn.as_bytes()]), element(0x80, &[password.as_bytes()])];
    message(id, &element(BIND_REQUEST, &[&parts.concat()]))
}

/// A search in the whole subtree (RFC 4511 §4.5). The filter is an equality match in BER, so that no character of the
/// value is syntax.
pub(crate) fn search(id: u32, request: &SearchRequest<'_>) -> Vec<u8> {
    let filter = [
        element(OCTET_STRING, &[request.attribute.as_bytes()]),
        element(OCTET_STRING, &[request.value.as_bytes()]),
    ];
    let parts = [
        element(OCTET_STRING, &[request.base.as_bytes()]),
        // Scope: the whole subtree.
        integer(ENUMERATED, 2),
        // Aliases are not followed.
        integer(ENUMERATED, 0),
        integer(INTEGER, request.size_limit.min(i32::MAX as u32)),
        integer(INTEGER, request.time_limit_s.min(i32::MAX as u32)),
        // Types only: the values of attributes are not needed.
        element(0x01, &[&[0xff]]),
        element(0xa3, &[&filter.concat()]),
        element(SEQUENCE, &[&element(OCTET_STRING, &[NO_ATTRIBUTES])]),
    ];
    message(id, &element(SEARCH_REQUEST, &[&parts.concat()]))
}

/// The request for TLS on this connection.
pub(crate) fn start_tls(id: u32) -> Vec<u8> {
    message(id, &element(EXTENDED_REQUEST, &[&element(0x80, &[START_TLS])]))
}

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LdapMessage {
    /// The id of the request; 0 for a notification of the server.
    pub(crate) id: u32,
    /// The operation.
    pub(crate) operation: LdapOperation,
}

/// The operation of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LdapOperation {
    Bind(LdapOutcome),
    Entry {
        dn: String,
    },
    Reference,
    SearchDone(LdapOutcome),
    Extended(LdapOutcome),
    /// A response that no request of ours has.
    Other,
}

/// The result of an operation (RFC 4511 §4.1.9).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LdapOutcome {
    pub(crate) code: u32,
    /// The diagnostic message, for logs.
    pub(crate) text: String,
}

/// The length of the message at the begin of `bytes`; `None` if more bytes are needed, an error if they are no message.
pub(crate) fn message_length(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    const MALFORMED: &str = "the server sent bytes that are not LDAP";
    let Some(tag) = bytes.first() else { return Ok(None) };
    if *tag != SEQUENCE {
        return Err(MALFORMED);
    }
    let Some(first) = bytes.get(1) else { return Ok(None) };
    let (head, length) = match *first {
        short @ 0..=0x7f => (2, usize::from(short)),
        // The indefinite form (0x80) is not allowed in LDAP (RFC 4511 §5.1).
        long @ 0x81..=0x84 => {
            let count = usize::from(long & 0x7f);
            let Some(bytes) = bytes.get(2..2 + count) else { return Ok(None) };
            (2 + count, bytes.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte)))
        }
        _ => return Err(MALFORMED),
    };
    let whole = head + length;
    if whole > MESSAGE_BYTES_MAX {
        return Err("the server sent a message over 64 KiB");
    }
    Ok((bytes.len() >= whole).then_some(whole))
}

/// Takes the element at the begin of `bytes`.
fn take<'b>(bytes: &mut &'b [u8]) -> Option<(u8, &'b [u8])> {
    let (tag, first) = (*bytes.first()?, *bytes.get(1)?);
    // A tag number from 31 on has further bytes; LDAP has none.
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (head, length) = match first {
        0..=0x7f => (2, usize::from(first)),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let length = bytes.get(2..2 + count)?;
            (2 + count, length.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte)))
        }
        _ => return None,
    };
    let content = bytes.get(head..head.checked_add(length)?)?;
    *bytes = &bytes[head + length..];
    Some((tag, content))
}

fn take_tagged<'b>(bytes: &mut &'b [u8], expected: u8) -> Option<&'b [u8]> {
    take(bytes).filter(|(tag, _)| *tag == expected).map(|(_, content)| content)
}

fn number(content: &[u8]) -> Option<u32> {
    let is_positive = content.first().is_some_and(|byte| byte & 0x80 == 0);
    let fits = content.len() <= 4 || (content.len() == 5 && content[0] == 0);
    (is_positive && fits).then(|| content.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)))
}

fn outcome(mut content: &[u8]) -> Option<LdapOutcome> {
    let code = number(take_tagged(&mut content, ENUMERATED)?)?;
    take_tagged(&mut content, OCTET_STRING)?;
    let text = take_tagged(&mut content, OCTET_STRING)?;
    Some(LdapOutcome { code, text: String::from_utf8_lossy(text).into_owned() })
}

/// Reads a whole message; `None` if it is malformed.
pub(crate) fn read_message(mut bytes: &[u8]) -> Option<LdapMessage> {
    let mut content = take_tagged(&mut bytes, SEQUENCE)?;
    if !bytes.is_empty() {
        return None;
    }
    let id = number(take_tagged(&mut content, INTEGER)?)?;
    // Controls may follow; none was requested, and none is critical in a response.
    let (tag, mut body) = take(&mut content)?;
    let operation = match tag {
        BIND_RESPONSE => LdapOperation::Bind(outcome(body)?),
        SEARCH_DONE => LdapOperation::SearchDone(outcome(body)?),
        EXTENDED_RESPONSE => LdapOperation::Extended(outcome(body)?),
        SEARCH_REFERENCE => LdapOperation::Reference,
        SEARCH_ENTRY => {
            // Names are UTF-8 (RFC 4511 §4.1.3).
            let dn = String::from_utf8(take_tagged(&mut body, OCTET_STRING)?.to_vec()).ok()?;
            LdapOperation::Entry { dn }
        }
        _ => LdapOperation::Other,
    };
    Some(LdapMessage { id, operation })
}

#[cfg(test)]
mod tests;
