//! Takes content codings off answers (RFC 9110 §8.4.1) for plugins that look for text in them.

use std::io::{self, Read};

use yumen_http::KnownField;
use yumen_plugin::ResponseHead;

/// How much one read of the brotli decoder asks for.
const BUFFER_BYTES: usize = 4096;
/// No window is larger (RFC 9659 §3), whatever a frame says.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// A coding that can be taken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentCoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// A coding that cannot, or several.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnsupportedCoding;

impl ContentCoding {
    /// What an answer is coded with; `None` is nothing.
    pub(crate) fn of(head: &ResponseHead) -> Result<Option<ContentCoding>, UnsupportedCoding> {
        let names = head
            .fields
            .all_known(KnownField::ContentEncoding)
            .flat_map(|value| value.split(|byte| *byte == b','));
        let mut coding = None;
        for name in names.map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()) {
            let found = match name.to_ascii_lowercase().as_slice() {
                b"identity" => continue,
                b"gzip" | b"x-gzip" => ContentCoding::Gzip,
                b"deflate" => ContentCoding::Deflate,
                b"br" => ContentCoding::Brotli,
                b"zstd" => ContentCoding::Zstd,
                _ => return Err(UnsupportedCoding),
            };
            if coding.replace(found).is_some() {
                return Err(UnsupportedCoding);
            }
        }
        Ok(coding)
    }

    /// The content, or as much of it as `bytes_max`; an error where it is not in this coding, breaks off, or is more
    /// than [`expanded_bytes_max`].
    pub(crate) fn decode(self, coded: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
        if coded.is_empty() {
            return Ok(Vec::new());
        }
        let expanded_max = expanded_bytes_max(coded.len());
        match self {
            ContentCoding::Gzip => read(flate2::read::MultiGzDecoder::new(coded), bytes_max, expanded_max),
            ContentCoding::Deflate => read(flate2::read::ZlibDecoder::new(coded), bytes_max, expanded_max),
            ContentCoding::Brotli => {
                read(brotli::Decompressor::new(coded, BUFFER_BYTES), bytes_max, expanded_max)
            }
            ContentCoding::Zstd => {
                let mut decoder = ::zstd::Decoder::new(coded)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                read(decoder, bytes_max, expanded_max)
            }
        }
    }
}

/// Bytes of content for each coded byte. Text that repeats itself comes to 20 or 30; Envoy's decompressors have the
/// same bound.
const EXPANSION_MAX: usize = 100;
/// Content up to this length may come from any number of coded bytes.
const EXPANDED_BYTES_MIN: usize = 256 * 1024;

/// The most content that so many coded bytes may become.
fn expanded_bytes_max(coded_bytes: usize) -> usize {
    coded_bytes.saturating_mul(EXPANSION_MAX).max(EXPANDED_BYTES_MIN)
}

fn read(decoder: impl Read, bytes_max: usize, expanded_max: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    decoder.take(bytes_max.min(expanded_max.saturating_add(1)) as u64).read_to_end(&mut content)?;
    if content.len() > expanded_max {
        return Err(io::Error::other("the content is too many times as long as its coding"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests;
