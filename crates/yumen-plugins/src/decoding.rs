//! Takes content codings off answers (RFC 9110 §8.4.1) for plugins that look for text in them.

use std::io::{self, Read};

use yumen_http::Known;
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
pub(crate) struct Unknown;

impl ContentCoding {
    /// What an answer is coded with; `None` is nothing.
    pub(crate) fn of(head: &ResponseHead) -> Result<Option<ContentCoding>, Unknown> {
        let names =
            head.fields.all_known(Known::ContentEncoding).flat_map(|value| value.split(|byte| *byte == b','));
        let mut coding = None;
        for name in names.map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()) {
            let found = match name.to_ascii_lowercase().as_slice() {
                b"identity" => continue,
                b"gzip" | b"x-gzip" => ContentCoding::Gzip,
                b"deflate" => ContentCoding::Deflate,
                b"br" => ContentCoding::Brotli,
                b"zstd" => ContentCoding::Zstd,
                _ => return Err(Unknown),
            };
            if coding.replace(found).is_some() {
                return Err(Unknown);
            }
        }
        Ok(coding)
    }

    /// The content, or as much of it as `bytes_max`; an error where it is not in this coding or breaks off.
    pub(crate) fn decode(self, coded: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
        if coded.is_empty() {
            return Ok(Vec::new());
        }
        match self {
            ContentCoding::Gzip => read(flate2::read::MultiGzDecoder::new(coded), bytes_max),
            ContentCoding::Deflate => read(flate2::read::ZlibDecoder::new(coded), bytes_max),
            ContentCoding::Brotli => read(brotli::Decompressor::new(coded, BUFFER_BYTES), bytes_max),
            ContentCoding::Zstd => {
                let mut decoder = ::zstd::Decoder::new(coded)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                read(decoder, bytes_max)
            }
        }
    }
}

fn read(decoder: impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    decoder.take(bytes_max as u64).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests;
