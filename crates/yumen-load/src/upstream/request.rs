//! HTTP/1 request parser of the test upstream: method, path and framing. Independent of sockets.

use memchr::{memchr, memmem};

use crate::response::{ChunkState, FramingFields, MalformedResponse, TransferCoding};

/// Maximum size of a head in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) head_only: bool,
    pub(crate) keep_alive: bool,
    pub(crate) body: UnreadBody,
}

/// Unread rest of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreadBody {
    Done,
    Sized(u64),
    Chunked(ChunkState),
}

impl ReceivedRequest {
    /// Parses a request at the beginning of the input; returns it with the length of its head. `None` if
    /// incomplete.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, MalformedResponse> {
        let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
            return if bytes.len() > HEAD_BYTES_MAX { Err(MalformedResponse::HeadTooLong) } else { Ok(None) };
        };
        let head = &bytes[..end + 2];
        let line_end = memchr(b'\n', head).ok_or(MalformedResponse::StatusLine)?;
        let line = std::str::from_utf8(&head[..line_end - 1]).map_err(|_| MalformedResponse::StatusLine)?;
        let mut words = line.split(' ');
        let (Some(method), Some(path), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(MalformedResponse::StatusLine);
        };
        let old = match version {
            "HTTP/1.1" => false,
            "HTTP/1.0" => true,
            _ => return Err(MalformedResponse::StatusLine),
        };
        let fields = FramingFields::read(&head[line_end + 1..])?;
        let body = match (fields.coding, fields.length) {
            (TransferCoding::Chunked, _) => UnreadBody::Chunked(ChunkState::START),
            (_, None | Some(0)) => UnreadBody::Done,
            (_, Some(length)) => UnreadBody::Sized(length),
        };
        let keep_alive = if old { fields.keep_alive } else { !fields.close };
        let request = Self { path: path.to_owned(), head_only: method == "HEAD", keep_alive, body };
        Ok(Some((request, end + 4)))
    }
}

impl UnreadBody {
    /// Consumes bytes of the body; returns their number.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<usize, MalformedResponse> {
        let mut taken = 0;
        while taken < bytes.len() {
            taken += match self {
                Self::Done => break,
                Self::Sized(left) => {
                    let some = (*left).min((bytes.len() - taken) as u64);
                    *left -= some;
                    if *left == 0 {
                        *self = Self::Done;
                    }
                    some as usize
                }
                Self::Chunked(chunk) => {
                    let (some, next) = chunk.feed(&bytes[taken..])?;
                    *self = next.map_or(Self::Done, Self::Chunked);
                    some
                }
            };
        }
        Ok(taken)
    }
}
