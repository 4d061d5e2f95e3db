//! The HTTP/1 that scripted clients and endpoints speak: simple, and none of the code under test.

use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::task::Poll;

use super::net::End;

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    None,
    Length(usize),
    Chunked,
    Close,
}

/// Why a message was not read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Torn {
    /// The connection ended before the first byte.
    Nothing,
    /// The connection ended amid the message; what was read of its body.
    Amid(Vec<u8>),
    /// Not HTTP.
    Malformed(String),
}

/// A head, read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    pub(crate) first: String,
    fields: Vec<(String, String)>,
}

impl Head {
    fn parse(text: &[u8]) -> Result<Head, Torn> {
        let malformed = || Torn::Malformed(text.escape_ascii().to_string());
        let text = std::str::from_utf8(text).map_err(|_| malformed())?;
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let pairs = lines.map(|line| {
            let (name, value) = line.split_once(':').ok_or_else(malformed)?;
            Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
        });
        Ok(Head { first, fields: pairs.collect::<Result<_, Torn>>()? })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    pub(crate) fn word(&self, index: usize) -> &str {
        self.first.split(' ').nth(index).unwrap_or_default()
    }

    pub(crate) fn sends_close(&self) -> bool {
        self.get("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// As the fields say; `otherwise` where they say nothing.
    pub(crate) fn framing(&self, otherwise: Framing) -> Framing {
        match (self.get("transfer-encoding"), self.get("content-length")) {
            (Some(_), _) => Framing::Chunked,
            (None, Some(length)) => Framing::Length(length.parse().unwrap_or(usize::MAX)),
            (None, None) => otherwise,
        }
    }
}

/// An end with what was read from it and not yet used.
pub(crate) struct Reader {
    end: Rc<End>,
    waiting: Vec<u8>,
    /// Whether bytes ended, and whether with a reset.
    pub(crate) was_reset: bool,
}

impl Reader {
    pub(crate) fn new(end: Rc<End>) -> Reader {
        Reader { end, waiting: Vec::new(), was_reset: false }
    }

    /// Reads more; says whether there was any.
    pub(crate) async fn more(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match poll_fn(|cx| self.end.poll_read(cx, &mut buffer)).await {
            Ok(0) => false,
            Ok(count) => {
                self.waiting.extend_from_slice(&buffer[..count]);
                true
            }
            Err(_) => {
                self.was_reset = true;
                false
            }
        }
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn waiting_text(&self) -> String {
        self.waiting.escape_ascii().to_string().chars().take(120).collect()
    }

    async fn line_end(&mut self, mark: &[u8]) -> Option<usize> {
        let mut from = 0;
        loop {
            if let Some(at) = self.waiting[from..].windows(mark.len()).position(|window| window == mark) {
                return Some(from + at + mark.len());
            }
            from = self.waiting.len().saturating_sub(mark.len() - 1);
            if !self.more().await {
                return None;
            }
        }
    }

    pub(crate) async fn head(&mut self) -> Result<Head, Torn> {
        let Some(end) = self.line_end(b"\r\n\r\n").await else {
            return Err(if self.has_waiting() { Torn::Amid(Vec::new()) } else { Torn::Nothing });
        };
        let text: Vec<u8> = self.waiting.drain(..end).collect();
        Head::parse(&text)
    }

    pub(crate) async fn body(&mut self, framing: Framing) -> Result<Vec<u8>, Torn> {
        match framing {
            Framing::None => Ok(Vec::new()),
            Framing::Length(length) => self.exactly(length).await,
            Framing::Close => {
                while self.more().await {}
                let body = std::mem::take(&mut self.waiting);
                if self.was_reset { Err(Torn::Amid(body)) } else { Ok(body) }
            }
            Framing::Chunked => self.chunks().await,
        }
    }

    async fn exactly(&mut self, length: usize) -> Result<Vec<u8>, Torn> {
        while self.waiting.len() < length {
            if !self.more().await {
                return Err(Torn::Amid(std::mem::take(&mut self.waiting)));
            }
        }
        Ok(self.waiting.drain(..length).collect())
    }

    async fn chunks(&mut self) -> Result<Vec<u8>, Torn> {
        let mut body = Vec::new();
        loop {
            let Some(end) = self.line_end(b"\r\n").await else { return Err(Torn::Amid(body)) };
            let line: Vec<u8> = self.waiting.drain(..end).collect();
            let text = String::from_utf8_lossy(&line[..end - 2]).into_owned();
            let hex = text.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(hex, 16)
                .map_err(|_| Torn::Malformed(format!("size line {:?}", text.escape_debug().to_string())))?;
            let data = match self.exactly(size + 2).await {
                Ok(data) => data,
                Err(Torn::Amid(part)) => {
                    body.extend_from_slice(&part[..part.len().min(size)]);
                    return Err(Torn::Amid(body));
                }
                Err(other) => return Err(other),
            };
            if !data.ends_with(b"\r\n") {
                return Err(Torn::Malformed("a chunk without its line end".into()));
            }
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&data[..size]);
        }
    }
}

/// Writes all; says whether it could.
pub(crate) async fn write(end: &End, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match poll_fn(|cx| end.poll_write(cx, &[IoSlice::new(bytes)])).await {
            Ok(count) => bytes = &bytes[count..],
            Err(_) => return false,
        }
    }
    true
}

/// Gives others a turn.
pub(crate) async fn pause() {
    let mut waited = false;
    poll_fn(|cx| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A body that no other id has, nor any other part of it.
pub(crate) fn content(id: u64, salt: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    let mut word = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt.wrapping_mul(0xD1B5_4A32_D192_ED03);
    while bytes.len() < length {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(word ^ (word >> 29)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A body in chunks of up to `chunk` bytes.
pub(crate) fn chunked(body: &[u8], chunk: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 64);
    for piece in body.chunks(chunk.max(1)) {
        out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}
