//! Decodes content codings of responses (RFC 9110 §8.4.1) for plugins that search the content.

use std::io::{self, Read};

use yumen_http::KnownField;
use yumen_plugin::ResponseHead;

/// Buffer of the Brotli decoder.
const BUFFER_BYTES: usize = 4096;
/// Largest window that RFC 9659 §3 allows, independent of the frame header.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// A supported content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentCoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// A coding that is not supported, or more than one coding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnsupportedCoding;

impl ContentCoding {
    /// The coding of a response; `None` for identity.
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

    /// Decodes the begin of a body that may be cut off, at most `bytes_max` bytes of content. A malformed rest is left
    /// out.
    pub(crate) fn decode_prefix(self, coded: &[u8], bytes_max: usize) -> Vec<u8> {
        let mut content = Vec::new();
        let bytes_max = bytes_max.min(expanded_bytes_max(coded.len())) as u64;
        // An error leaves the content in front of it.
        let _ = match self {
            ContentCoding::Gzip => {
                flate2::read::MultiGzDecoder::new(coded).take(bytes_max).read_to_end(&mut content)
            }
            ContentCoding::Deflate => {
                flate2::read::ZlibDecoder::new(coded).take(bytes_max).read_to_end(&mut content)
            }
            ContentCoding::Brotli => {
                brotli::Decompressor::new(coded, BUFFER_BYTES).take(bytes_max).read_to_end(&mut content)
            }
            ContentCoding::Zstd => ::zstd::Decoder::new(coded).and_then(|mut decoder| {
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                decoder.take(bytes_max).read_to_end(&mut content)
            }),
        };
        content
    }

    /// Decodes at most `bytes_max` bytes of content. Malformed or truncated input and content larger than
    /// [`expanded_bytes_max`] are errors.
    pub(crate) fn decode(self, coded: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
        if coded.is_empty() {
            return Ok(Vec::new());
        }
        let expanded_max = expanded_bytes_max(coded.len());
        match self {
            // A gzip stream may have several members (RFC 1952 §2.2).
            ContentCoding::Gzip => read(flate2::read::MultiGzDecoder::new(coded), bytes_max, expanded_max),
            // The coding `deflate` has the zlib format (RFC 9110 §8.4.1.2).
            ContentCoding::Deflate => read(flate2::read::ZlibDecoder::new(coded), bytes_max, expanded_max),
            ContentCoding::Brotli => {
                read(brotli::Decompressor::new(coded, BUFFER_BYTES), bytes_max, expanded_max)
            }
            ContentCoding::Zstd => {
                let mut decoder = ::zstd::Decoder::new(coded)?;
                // Bounds the memory that a frame can demand.
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                read(decoder, bytes_max, expanded_max)
            }
        }
    }
}

/// Largest ratio of content to coded bytes. Repetitive text reaches 20 to 30; Envoy's decompressors have the
/// same bound.
const EXPANSION_MAX: usize = 100;
/// Content up to this length is allowed at any ratio.
const EXPANDED_BYTES_MIN: usize = 256 * 1024;

/// Largest content that this number of coded bytes may expand to.
fn expanded_bytes_max(coded_bytes: usize) -> usize {
    coded_bytes.saturating_mul(EXPANSION_MAX).max(EXPANDED_BYTES_MIN)
}

fn read(decoder: impl Read, bytes_max: usize, expanded_max: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // One byte more than allowed, to detect an excess.
    decoder.take(bytes_max.min(expanded_max.saturating_add(1)) as u64).read_to_end(&mut content)?;
    if content.len() > expanded_max {
        return Err(io::Error::other("the content is too many times as long as its coding"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests;
