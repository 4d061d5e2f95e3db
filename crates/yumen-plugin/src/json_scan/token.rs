//! Ends of JSON tokens. Each function takes the offset of the first byte of a token.

/// Offset of the first byte that is not white space (RFC 8259 §2).
#[inline]
pub(super) fn skip_space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Marks bytes that end a run of plain characters: quotes, backslashes and control characters. Only the
/// lowest mark is exact, because a borrow may set marks after it.
fn special_bytes(word: u64) -> u64 {
    let zero = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
    let controls = word.wrapping_sub(LOW * 0x20) & !word & HIGH;
    zero(word ^ (LOW * u64::from(b'"'))) | zero(word ^ (LOW * u64::from(b'\\'))) | controls
}

/// Offset of the first quote, backslash or control character.
fn run_end(text: &[u8], mut at: usize) -> usize {
    while let Some(word) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let found = special_bytes(u64::from_le_bytes(*word));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    // The last bytes do not fill a word.
    while text.get(at).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)) {
        at += 1;
    }
    at
}

/// Offset after the closing quote of a string, and whether the string contains an escape. Unpaired surrogates
/// are accepted here.
pub(crate) fn string_end(text: &[u8], at: usize) -> Option<(usize, bool)> {
    let (mut at, mut has_escape) = (at + 1, false);
    loop {
        at = run_end(text, at);
        match text.get(at)? {
            b'"' => return Some((at + 1, has_escape)),
            b'\\' => at += escape_length(text.get(at + 1..)?)?,
            // Control characters are invalid in a string (RFC 8259 §7).
            _ => return None,
        }
        has_escape = true;
    }
}

/// Length of an escape including its backslash; `rest` begins after the backslash.
fn escape_length(rest: &[u8]) -> Option<usize> {
    match rest.first()? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => rest.get(1..5)?.iter().all(u8::is_ascii_hexdigit).then_some(6),
        _ => None,
    }
}

/// Offset after a number (RFC 8259 §6).
#[inline]
pub(super) fn number_end(text: &[u8], mut at: usize) -> Option<usize> {
    at += usize::from(text.get(at) == Some(&b'-'));
    at = match text.get(at)? {
        // A number has no leading zeros (RFC 8259 §6).
        b'0' => at + 1,
        _ => digits_end(text, at)?,
    };
    if text.get(at) == Some(&b'.') {
        at = digits_end(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        let has_sign = matches!(text.get(at + 1), Some(b'+' | b'-'));
        at = digits_end(text, at + 1 + usize::from(has_sign))?;
    }
    Some(at)
}

/// Offset after one or more digits.
#[inline]
fn digits_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while text.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    (at > start).then_some(at)
}

/// Offset after `true`, `false` or `null`.
pub(super) fn literal_end(text: &[u8], at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    let literal = [&b"true"[..], b"false", b"null"].into_iter().find(|literal| rest.starts_with(literal))?;
    Some(at + literal.len())
}
