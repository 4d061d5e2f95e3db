//! `gzip`: compresses responses with gzip (RFC 1952).

use std::sync::Arc;

use flate2::write::GzEncoder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    PhaseSet, Plugin, PluginBuildContext, PluginFactory, ResponseCoding, ResponseHead, ResponseHeadPhase,
};

use crate::compression::{self, BodyEncoder, CompressibleTypes, CompressionCoding, CompressionRules};

/// Settings of `gzip`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct GzipSettings {
    /// Media types of the responses to compress, or `*` for all.
    #[serde(default)]
    types: CompressibleTypes,
    /// Shortest response to compress, in bytes. A response of unknown length is compressed.
    #[serde(default = "compression::min_length")]
    #[schemars(range(min = 1))]
    min_length: u64,
    /// Compression level, from fastest to smallest.
    #[serde(default = "comp_level")]
    #[schemars(range(min = 1, max = 9))]
    comp_level: u32,
    /// Lowest HTTP version of requests to compress responses for.
    #[serde(default = "compression::http_version")]
    #[schemars(schema_with = "compression::http_version_schema")]
    http_version: f64,
    /// Accepted without effect. Yumen compresses chunk by chunk and needs no such buffers.
    #[serde(default)]
    #[expect(dead_code, reason = "part of the contract")]
    buffers: GzipBuffers,
    /// Whether the response carries `Vary: Accept-Encoding`.
    vary: Option<bool>,
}

fn comp_level() -> u32 {
    1
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
struct GzipBuffers {
    /// Number of buffers.
    #[schemars(range(min = 1))]
    number: u64,
    /// Size of each buffer in bytes.
    #[schemars(range(min = 1))]
    size: u64,
}

impl Default for GzipBuffers {
    fn default() -> GzipBuffers {
        GzipBuffers { number: 32, size: 4096 }
    }
}

/// Statuses of responses to compress, as in NGINX.
const STATUSES: &[u16] = &[200, 403, 404];

/// The plugin: offers the coding to the exchange.
pub(crate) struct Gzip(Arc<dyn ResponseCoding>);

impl PluginFactory for Gzip {
    const NAME: &'static str = "gzip";
    const PRIORITY: i32 = 995;
    type Config = GzipSettings;

    fn build(config: GzipSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let level = flate2::Compression::new(config.comp_level);
        let terms = CompressionRules {
            types: config.types,
            length_min: config.min_length,
            http_version: config.http_version,
            varies: config.vary.unwrap_or(false),
            statuses: STATUSES,
        };
        let begin = move || GzEncoder::new(Vec::new(), level);
        Ok(Gzip(CompressionCoding { name: "gzip", terms, begin }.offer()))
    }
}

impl Plugin for Gzip {
    fn phases(&self) -> PhaseSet {
        PhaseSet::RESPONSE_HEAD
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, _: &mut ResponseHead) {
        ex.offer_coding(self.0.clone());
    }
}

impl BodyEncoder for GzEncoder<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn end(self) -> std::io::Result<Vec<u8>> {
        self.finish()
    }
}
