//! Character classes of RFC 9110 §5.6.2 and RFC 9112 §3, as tables.

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const VALUE: u8 = 4;
const HOST: u8 = 8;
/// Host characters without capital letters.
const LOWER_HOST: u8 = 16;

/// Masks over the eight bytes of a word.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut byte = 0usize;
    while byte < 256 {
        let b = byte as u8;
        let mut class = 0;
        if b.is_ascii_alphanumeric() || contains(b"!#$%&'*+-.^_`|~", b) {
            class |= TOKEN;
        }
        // A request target has no fragment (RFC 9110 §7.1).
        if (b > 0x20 && b != 0x7f) && b != b'#' {
            class |= TARGET;
        }
        // RFC 9110 §5.5, with its obsolete bytes beyond ASCII.
        if b == b'\t' || (b >= 0x20 && b != 0x7f) {
            class |= VALUE;
        }
        // The characters of a registered name (RFC 3986 §3.2.2).
        if b.is_ascii_alphanumeric() || contains(b"-._~%!$&'()*+,;=", b) {
            class |= if b.is_ascii_uppercase() { HOST } else { HOST | LOWER_HOST };
        }
        table[byte] = class;
        byte += 1;
    }
    table
}

const fn contains(set: &[u8], byte: u8) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|byte| CLASS[*byte as usize] & class != 0)
}

/// Whether `bytes` is a token: a method, a field name, a transfer coding.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// Whether two names are equal for CGI-like applications, which compare only letters and digits and ignore
/// case.
pub(crate) fn is_alike(name: &[u8], other: &[u8]) -> bool {
    let folded = |byte: &u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'_' };
    name.len() == other.len() && name.iter().map(folded).eq(other.iter().map(folded))
}

/// Whether `bytes` is a valid request target. Bytes beyond ASCII are accepted, as in other servers.
pub(crate) fn is_target(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TARGET)
}

/// Whether `bytes` is a valid host name or IPv4 address; `Some(true)` if it contains capital letters.
pub(crate) fn host_name(bytes: &[u8]) -> Option<bool> {
    let shared = bytes.iter().fold(HOST | LOWER_HOST, |shared, byte| shared & CLASS[*byte as usize]);
    (shared & HOST != 0 && !bytes.is_empty()).then_some(shared & LOWER_HOST == 0)
}

/// The number of leading bytes that are valid in a request target.
pub(crate) fn target_len(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| CLASS[**byte as usize] & TARGET != 0).count()
}

/// The parts of a text between separators. A cookie may be long, so its end is searched by words.
pub(crate) fn parts(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = memchr::memchr(separator, text);
        rest = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// The position of the first `byte` in the word.
#[inline]
pub(crate) fn find_in_word(word: &[u8; 8], byte: u8) -> Option<usize> {
    let other = u64::from_le_bytes(*word) ^ (ONES * u64::from(byte));
    // A borrow sets false marks only above the first true one.
    let found = other.wrapping_sub(ONES) & !other & HIGH;
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// The position of the first colon. Field names are short, so a call to a vectorized search would cost more
/// than it saves.
pub(crate) fn find_colon(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        if let Some(found) = find_in_word(word, b':') {
            return Some(at * 8 + found);
        }
    }
    Some(words.len() * 8 + rest.iter().position(|byte| *byte == b':')?)
}

/// Whether `bytes` is a valid field value: no control characters except the tab (RFC 9110 §5.5).
pub(crate) fn is_value(bytes: &[u8]) -> bool {
    value_len(bytes) == bytes.len()
}

/// The number of leading bytes that are valid in a field value.
///
/// Scans eight bytes at a time, because values are the bulk of a head. Larger blocks cost more than they
/// save, because most values are short.
pub(crate) fn value_len(bytes: &[u8]) -> usize {
    const LOW: u64 = ONES * 0x7f;
    let is_good = |byte: &&u8| CLASS[**byte as usize] & VALUE != 0;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, bytes) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*bytes);
        // Adding one turns DEL into 0. All bytes below 0x21 then stay below 0x80 when 0x5f is added, without
        // a carry between bytes.
        let next = ((word & LOW) + ONES) & LOW;
        let marks = !((next + ONES * 0x5f) | word) & HIGH;
        if marks != 0 {
            let first = marks.trailing_zeros() as usize / 8;
            if bytes[first] == b'\r' {
                return at * 8 + first;
            }
            // Tabs are marked too, although they are valid.
            let good = first + bytes[first..].iter().take_while(is_good).count();
            if good < 8 {
                return at * 8 + good;
            }
        }
    }
    words.len() * 8 + rest.iter().take_while(is_good).count()
}

/// Removes surrounding spaces and tabs (OWS, RFC 9110 §5.6.3).
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests;
