//! `gzip`: compresses responses for clients that accept gzip.

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
    /// The media types that are compressed, or `*` for all.
    #[serde(default)]
    types: CompressibleTypes,
    /// Answers of fewer bytes are left alone, where their length is known.
    #[serde(default = "compression::min_length")]
    #[schemars(range(min = 1))]
    min_length: u64,
    /// From fast to small.
    #[serde(default = "comp_level")]
    #[schemars(range(min = 1, max = 9))]
    comp_level: u32,
    /// The oldest version of HTTP that gets compressed answers.
    #[serde(default = "compression::http_version")]
    #[schemars(schema_with = "compression::http_version_schema")]
    http_version: f64,
    /// Buffers of NGINX. Yumen needs none: a piece leaves before the next is read.
    #[serde(default)]
    #[expect(dead_code, reason = "part of the contract")]
    buffers: GzipBuffers,
    /// Whether the answer says `Vary: Accept-Encoding`.
    vary: Option<bool>,
}

fn comp_level() -> u32 {
    1
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
struct GzipBuffers {
    /// How many.
    #[schemars(range(min = 1))]
    number: u64,
    /// Bytes of each.
    #[schemars(range(min = 1))]
    size: u64,
}

impl Default for GzipBuffers {
    fn default() -> GzipBuffers {
        GzipBuffers { number: 32, size: 4096 }
    }
}

/// The statuses that NGINX compresses.
const STATUSES: &[u16] = &[200, 403, 404];

/// The plugin.
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
