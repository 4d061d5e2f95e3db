use std::io::Write;

use super::*;

fn coded(coding: ContentCoding, text: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::default();
    match coding {
        ContentCoding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        ContentCoding::Deflate => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        ContentCoding::Brotli => {
            let mut out = Vec::new();
            brotli::CompressorWriter::new(&mut out, 4096, 5, 20).write_all(text).unwrap();
            out
        }
        ContentCoding::Zstd => ::zstd::encode_all(text, 1).unwrap(),
    }
}

const ALL: [ContentCoding; 4] =
    [ContentCoding::Gzip, ContentCoding::Deflate, ContentCoding::Brotli, ContentCoding::Zstd];

#[test]
fn coded_bodies_are_decoded_up_to_the_bound() {
    let text = b"the quick brown fox jumps over the lazy dog; ".repeat(500);
    for coding in ALL {
        let coded = coded(coding, &text);
        assert_eq!(coding.decode(&coded, text.len()).unwrap(), text, "{coding:?}");
        assert_eq!(coding.decode(&coded, 100).unwrap(), text[..100], "{coding:?}");
        assert_eq!(coding.decode(&coded, 1 << 26).unwrap(), text, "{coding:?}");
    }
}

#[test]
fn truncated_or_invalid_coding_is_an_error() {
    let text: Vec<u8> = (0..20_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    for coding in ALL {
        let whole = coded(coding, &text);
        for end in [1, whole.len() / 2, whole.len() - 1] {
            assert!(coding.decode(&whole[..end], 1 << 26).is_err(), "{coding:?} {end}");
        }
        // A response without a body may have a coding too.
        assert_eq!(coding.decode(b"", 1 << 26).unwrap(), b"");
        assert!(coding.decode(b"<html>no such thing</html>", 1 << 26).is_err(), "{coding:?}");
    }
}

#[test]
fn a_bomb_stays_within_the_bound() {
    let zeros = vec![0; 32 << 20];
    for coding in ALL {
        assert_eq!(coding.decode(&coded(coding, &zeros), 1000).unwrap().len(), 1000, "{coding:?}");
    }
}

#[test]
fn content_is_bounded_by_its_coded_length() {
    let zeros = vec![0; 32 << 20];
    for coding in ALL {
        let coded = coded(coding, &zeros);
        assert!(coding.decode(&coded, 64 << 20).is_err(), "{coding:?} {}", coded.len());
    }
    // A short response may expand at any ratio.
    let short = vec![b' '; EXPANDED_BYTES_MIN];
    for coding in ALL {
        assert_eq!(coding.decode(&coded(coding, &short), 64 << 20).unwrap().len(), short.len(), "{coding:?}");
    }
}

#[test]
fn the_head_says_which_coding_it_is() {
    for (lines, expected) in [
        (&[][..], Ok(None)),
        (&["identity"], Ok(None)),
        (&["GZip"], Ok(Some(ContentCoding::Gzip))),
        (&["x-gzip, identity"], Ok(Some(ContentCoding::Gzip))),
        (&["deflate"], Ok(Some(ContentCoding::Deflate))),
        (&["br"], Ok(Some(ContentCoding::Brotli))),
        (&["", "zstd"], Ok(Some(ContentCoding::Zstd))),
        (&["gzip, br"], Err(UnsupportedCoding)),
        (&["gzip", "gzip"], Err(UnsupportedCoding)),
        (&["compress"], Err(UnsupportedCoding)),
    ] {
        let mut head = ResponseHead::default();
        lines.iter().for_each(|line| head.fields.add("Content-Encoding", line.as_bytes()));
        assert_eq!(ContentCoding::of(&head), expected, "{lines:?}");
    }
}
