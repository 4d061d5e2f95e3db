//! `zstd`: compresses responses with Zstandard (RFC 8878).

use std::sync::Arc;

use ::zstd::stream::write::Encoder as ZstdEncoder;
use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    PhaseSet, Plugin, PluginBuildContext, PluginFactory, ResponseCoding, ResponseHead, ResponseHeadPhase,
};

use crate::compression::{self, BodyEncoder, CompressibleTypes, CompressionCoding, CompressionRules};

/// Settings of `zstd`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ZstdSettings {
    /// Media types of the responses to compress, or `*` for all.
    #[serde(default)]
    types: CompressibleTypes,
    /// Shortest response to compress, in bytes. A response of unknown length is compressed.
    #[serde(default = "compression::min_length")]
    #[schemars(range(min = 1))]
    min_length: u64,
    /// Compression level, from fastest to smallest.
    #[serde(default = "comp_level")]
    #[schemars(range(min = 1, max = 19))]
    comp_level: i32,
    /// Window size as a power of two. Each response in flight holds a few windows in memory. Clients need not
    /// support more than 23 (RFC 9659).
    #[serde(default = "window_log")]
    #[schemars(range(min = 10, max = 23))]
    window_log: u32,
    /// Lowest HTTP version of requests to compress responses for.
    #[serde(default = "compression::http_version")]
    #[schemars(schema_with = "compression::http_version_schema")]
    http_version: f64,
    /// Whether the response carries `Vary: Accept-Encoding`.
    vary: Option<bool>,
}

fn comp_level() -> i32 {
    3
}

fn window_log() -> u32 {
    19
}

/// The plugin: offers the coding to the exchange.
pub(crate) struct Zstd(Arc<dyn ResponseCoding>);

impl PluginFactory for Zstd {
    const NAME: &'static str = "zstd";
    const PRIORITY: i32 = 997;
    type Config = ZstdSettings;

    fn build(config: ZstdSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let (level, window_log) = (config.comp_level, config.window_log);
        // Settings that zstd refuses must fail here and not at the first response.
        encoder(level, window_log).map_err(|error| InvalidSettings::new(error.to_string()))?;
        let terms = CompressionRules {
            types: config.types,
            length_min: config.min_length,
            http_version: config.http_version,
            varies: config.vary.unwrap_or(false),
            statuses: &[],
        };
        let begin = move || encoder(level, window_log).expect("the same settings were taken before");
        Ok(Zstd(CompressionCoding { name: "zstd", terms, begin }.offer()))
    }
}

fn encoder(level: i32, window_log: u32) -> std::io::Result<ZstdEncoder<'static, Vec<u8>>> {
    let mut encoder = ZstdEncoder::new(Vec::new(), level)?;
    encoder.window_log(window_log)?;
    Ok(encoder)
}

impl Plugin for Zstd {
    fn phases(&self) -> PhaseSet {
        PhaseSet::RESPONSE_HEAD
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, _: &mut ResponseHead) {
        ex.offer_coding(self.0.clone());
    }
}

impl BodyEncoder for ZstdEncoder<'static, Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn end(self) -> std::io::Result<Vec<u8>> {
        self.finish()
    }
}
