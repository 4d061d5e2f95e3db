//! A DER reader and writer for keys and OCSP, without copies.
//!
//! Accepts any input: invalid DER ends the iteration.

/// Tags in use.
pub(super) mod tag {
    pub(crate) const INTEGER: u8 = 0x02;
    pub(crate) const BIT_STRING: u8 = 0x03;
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const OID: u8 = 0x06;
    pub(crate) const ENUMERATED: u8 = 0x0a;
    pub(crate) const GENERALIZED_TIME: u8 = 0x18;
    pub(crate) const SEQUENCE: u8 = 0x30;
    /// A constructed, context-specific tag.
    pub(crate) const fn context(number: u8) -> u8 {
        0xa0 | number
    }
}

/// A decoded value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DerValue<'a> {
    pub(super) tag: u8,
    /// The content octets.
    pub(super) content: &'a [u8],
    /// The complete encoding, with tag and length.
    pub(super) whole: &'a [u8],
}

/// Reads consecutive values.
#[derive(Debug, Clone, Copy)]
pub(super) struct DerReader<'a>(pub(super) &'a [u8]);

impl<'a> DerReader<'a> {
    /// Reads the next value.
    pub(super) fn next(&mut self) -> Option<DerValue<'a>> {
        let bytes = self.0;
        let (&tag, rest) = bytes.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        // Multi-byte tags are not used, and no supported structure exceeds a length of 4 bytes.
        if tag & 0x1f == 0x1f || first == 0x80 || first > 0x84 {
            return None;
        }
        if first > 0x80 {
            let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            length = digits.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            rest = after;
        }
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some(DerValue { tag, content, whole: &bytes[..bytes.len() - after.len()] })
    }

    /// Reads the next value if it has this tag.
    pub(super) fn take(&mut self, tag: u8) -> Option<DerValue<'a>> {
        let mut ahead = *self;
        let value = ahead.next().filter(|value| value.tag == tag)?;
        *self = ahead;
        Some(value)
    }

    /// Reads the content of the next value if it has this tag.
    pub(super) fn enter(&mut self, tag: u8) -> Option<DerReader<'a>> {
        self.take(tag).map(|value| DerReader(value.content))
    }
}

/// Encodes a value.
pub(super) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ 0..0x80 => out.push(short as u8),
        long => {
            let digits = long.to_be_bytes();
            let zeros = digits.iter().take_while(|byte| **byte == 0).count();
            out.push(0x80 | (digits.len() - zeros) as u8);
            out.extend_from_slice(&digits[zeros..]);
        }
    }
    out.extend_from_slice(content);
    out
}
