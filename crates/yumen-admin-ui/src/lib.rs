//! The files of the dashboard, compressed into the binary. Knows no HTTP.

use std::io::Read;

use flate2::read::GzDecoder;

#[cfg(test)]
mod tests;

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// A file of the dashboard.
#[derive(Debug)]
pub struct UiAsset {
    /// `Content-Type`.
    pub content_type: &'static str,
    /// The file, compressed with gzip.
    pub gzip: &'static [u8],
    /// The entity tag, in quotes.
    pub etag: &'static str,
}

impl UiAsset {
    /// The file for a client that does not accept gzip.
    pub fn plain(&self) -> Vec<u8> {
        let mut plain = Vec::new();
        let read = GzDecoder::new(self.gzip).read_to_end(&mut plain);
        read.expect("the build script compressed it");
        plain
    }
}

/// The file with this path, such as `app/main.js`.
pub fn asset(path: &str) -> Option<&'static UiAsset> {
    let at = ASSETS.binary_search_by(|(other, _)| (*other).cmp(path)).ok()?;
    Some(&ASSETS[at].1)
}

/// The page, which loads all other files.
pub fn index() -> &'static UiAsset {
    asset("index.html").expect("assets contain index.html")
}
