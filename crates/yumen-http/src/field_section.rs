//! A head of HTTP/3 as it was compressed, read only for the protocol it asks for (RFC 9204 §4.5, RFC 9220).
//!
//! Knows lines whose text stands in the section itself and steps over all others: what they mean is somebody
//! else's to find out.

#[cfg(test)]
mod tests;

/// The name of the field, as it is and as Huffman coding has it, which is one way only (RFC 7541 §5.2).
const NAME: [&[u8]; 2] = [b":protocol", &[0xb9, 0x5d, 0x87, 0x49, 0xc8, 0x7a, 0x3f]];
/// The value that is known.
const WEBSOCKET: [&[u8]; 2] = [b"websocket", &[0xf0, 0x58, 0xd0, 0x72, 0x75, 0x2a, 0x7f]];

/// What a CONNECT wants to speak inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectProtocol {
    /// RFC 6455.
    WebSocket,
    /// Nothing that is known here.
    Other,
}

/// Takes the line that names a protocol out of a field section: gives back what is left, and the protocol.
///
/// `None` where no line names one, where several do, and where the section is broken: it goes on as it came.
pub fn take_protocol(section: &[u8]) -> Option<(Vec<u8>, ConnectProtocol)> {
    let mut reader = FieldSectionReader { section, at: 0 };
    // How many entries of the table are needed, and from where lines count.
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
    /// Steps over a line; gives back its value if it names a protocol.
    fn line(&mut self) -> Option<Option<&'s [u8]>> {
        match self.section.get(self.at)?.leading_zeros() {
            // A line of the table that everybody knows, or of the one that is built as one goes.
            0 => self.number(6).map(|_| None),
            // The name is of such a line.
            1 => {
                self.number(4)?;
                self.text(7).map(|_| None)
            }
            2 => {
                let name = self.text(3)?;
                let value = self.text(7)?;
                Some(NAME.contains(&name).then_some(value))
            }
            // The same two, of lines that were added while this section was written.
            3 => self.number(4).map(|_| None),
            _ => {
                self.number(3)?;
                self.text(7).map(|_| None)
            }
        }
    }

    /// A number that begins in the last `bits` of the next byte (RFC 7541 §5.1).
    fn number(&mut self, bits: u32) -> Option<usize> {
        let most = (1 << bits) - 1;
        let first = usize::from(*self.section.get(self.at)?) & most;
        self.at += 1;
        if first < most {
            return Some(first);
        }
        let mut number = first;
        // More than this no length in a section can be.
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

    /// A text whose length begins in the last `bits` of the next byte, as it stands there.
    ///
    /// Which coding it has is not asked: no text is the other's code by chance, since one of them has bytes
    /// beyond ASCII.
    fn text(&mut self, bits: u32) -> Option<&'s [u8]> {
        let length = self.number(bits)?;
        let text = self.section.get(self.at..)?.get(..length)?;
        self.at += length;
        Some(text)
    }
}
