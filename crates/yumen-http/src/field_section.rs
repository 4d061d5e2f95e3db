//! Encoded field sections of HTTP/3, parsed only for `:protocol` (RFC 9204 §4.5, RFC 9220).
//!
//! Decodes only field lines with literal names, and skips all others. Independent of the QPACK tables.

#[cfg(test)]
mod tests;

/// The field name, plain and in Huffman coding, which is unique (RFC 7541 §5.2).
const NAME: [&[u8]; 2] = [b":protocol", &[0xb9, 0x5d, 0x87, 0x49, 0xc8, 0x7a, 0x3f]];
/// The supported value, in both codings.
const WEBSOCKET: [&[u8]; 2] = [b"websocket", &[0xf0, 0x58, 0xd0, 0x72, 0x75, 0x2a, 0x7f]];

/// The protocol of an extended CONNECT request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectProtocol {
    /// WebSocket (RFC 6455).
    WebSocket,
    /// Any other protocol.
    Other,
}

/// Removes the `:protocol` line from a field section; returns the remaining section and the protocol.
///
/// Returns `None` if there is no such line, several of them, or the section is malformed. The section is then
/// used as received.
pub fn take_protocol(section: &[u8]) -> Option<(Vec<u8>, ConnectProtocol)> {
    let mut reader = FieldSectionReader { section, at: 0 };
    // The prefix: Required Insert Count and Base (RFC 9204 §4.5.1).
    reader.number(8)?;
    reader.number(7)?;
    let mut found = None;
    while reader.at < section.len() {
        let start = reader.at;
        let Some(value) = reader.line()? else { continue };
        let protocol =
            if WEBSOCKET.contains(&value) { ConnectProtocol::WebSocket } else { ConnectProtocol::Other };
        if found.replace((start..reader.at, protocol)).is_some() {
            return None;
        }
    }
    let (line, protocol) = found?;
    Some(([&section[..line.start], &section[line.end..]].concat(), protocol))
}

struct FieldSectionReader<'s> {
    section: &'s [u8],
    at: usize,
}

impl<'s> FieldSectionReader<'s> {
    /// Skips a field line; returns its value if the name is `:protocol`.
    fn line(&mut self) -> Option<Option<&'s [u8]>> {
        // The first bits select the kind of line (RFC 9204 §4.5).
        match self.section.get(self.at)?.leading_zeros() {
            // Indexed field line (RFC 9204 §4.5.2).
            0 => self.number(6).map(|_| None),
            // Literal field line with name reference (RFC 9204 §4.5.4).
            1 => {
                self.number(4)?;
                self.text(7).map(|_| None)
            }
            // Literal field line with literal name (RFC 9204 §4.5.6).
            2 => {
                let name = self.text(3)?;
                let value = self.text(7)?;
                Some(NAME.contains(&name).then_some(value))
            }
            // Indexed field line with post-Base index; below, literal with post-Base name reference (§4.5.3,
            // §4.5.5).
            3 => self.number(4).map(|_| None),
            _ => {
                self.number(3)?;
                self.text(7).map(|_| None)
            }
        }
    }

    /// Reads a prefixed integer that starts in the last `bits` bits of the next byte (RFC 7541 §5.1).
    fn number(&mut self, bits: u32) -> Option<usize> {
        let most = (1 << bits) - 1;
        let first = usize::from(*self.section.get(self.at)?) & most;
        self.at += 1;
        if first < most {
            return Some(first);
        }
        let mut number = first;
        // Four continuation bytes exceed any length in a section.
        for shift in [0, 7, 14, 21] {
            let byte = usize::from(*self.section.get(self.at)?);
            self.at += 1;
            number += (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// Reads a string literal whose length starts in the last `bits` bits of the next byte.
    ///
    /// The Huffman flag is ignored: the two codings of a name differ, because one of them has bytes beyond
    /// ASCII.
    fn text(&mut self, bits: u32) -> Option<&'s [u8]> {
        let length = self.number(bits)?;
        let text = self.section.get(self.at..)?.get(..length)?;
        self.at += length;
        Some(text)
    }
}
