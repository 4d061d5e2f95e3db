//! Identifiers as hexadecimal text.

/// Parses exactly `2 * N` hexadecimal digits in either case; `None` also for an identifier of zeros, which all formats
/// forbid.
pub(crate) fn parse<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut id = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, digits) in id.iter_mut().zip(text.chunks_exact(2)) {
        *byte = byte_of(digits)?;
    }
    (id != [0; N]).then_some(id)
}

/// The value of two hexadecimal digits.
pub(crate) fn byte_of(digits: &[u8]) -> Option<u8> {
    let [high, low] = digits else { return None };
    Some(digit(*high)? << 4 | digit(*low)?)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Writes lower-case digits to the begin of `out`, which must have room for them, and returns the rest.
pub(crate) fn write<'o>(out: &'o mut [u8], id: &[u8]) -> &'o mut [u8] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let (text, rest) = out.split_at_mut(2 * id.len());
    for (digits, byte) in text.chunks_exact_mut(2).zip(id) {
        digits[0] = DIGITS[usize::from(byte >> 4)];
        digits[1] = DIGITS[usize::from(byte & 15)];
    }
    rest
}

/// The lower-case digits of a span identifier.
pub(crate) fn span_text(id: [u8; 8]) -> [u8; 16] {
    let mut text = [0; 16];
    write(&mut text, &id);
    text
}

/// The lower-case digits of a trace identifier.
pub(crate) fn trace_text(id: [u8; 16]) -> [u8; 32] {
    let mut text = [0; 32];
    write(&mut text, &id);
    text
}
