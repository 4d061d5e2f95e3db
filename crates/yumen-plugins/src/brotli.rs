//! `brotli`: compresses responses with Brotli (RFC 7932).

use std::sync::Arc;

use ::brotli::CompressorWriter;
use ::brotli::enc::BrotliEncoderParams;
use ::brotli::enc::backward_references::BrotliEncoderMode;
use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    PhaseSet, Plugin, PluginBuildContext, PluginFactory, ResponseCoding, ResponseHead, ResponseHeadPhase,
};

use crate::compression::{self, BodyEncoder, CompressibleTypes, CompressionCoding, CompressionRules};

/// Settings of `brotli`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct BrotliSettings {
    /// Media types of the responses to compress, or `*` for all.
    #[serde(default)]
    types: CompressibleTypes,
    /// Shortest response to compress, in bytes. A response of unknown length is compressed.
    #[serde(default = "compression::min_length")]
    #[schemars(range(min = 1))]
    min_length: u64,
    /// Type of the content: 0 generic, 1 text, 2 fonts.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2))]
    mode: u8,
    /// Compression level, from fastest to smallest. From 10 on, each response needs tens of megabytes of
    /// memory.
    #[serde(default = "comp_level")]
    #[schemars(range(min = 0, max = 11))]
    comp_level: i32,
    /// Window size as a power of two, 0 for automatic. Each response in flight holds a few windows in memory.
    #[serde(default = "lgwin")]
    #[schemars(extend("enum" = [0, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24]))]
    lgwin: i32,
    /// Largest input block as a power of two; 0 lets the level decide.
    #[serde(default)]
    #[schemars(extend("enum" = [0, 16, 17, 18, 19, 20, 21, 22, 23, 24]))]
    lgblock: i32,
    /// Lowest HTTP version of requests to compress responses for.
    #[serde(default = "compression::http_version")]
    #[schemars(schema_with = "compression::http_version_schema")]
    http_version: f64,
    /// Whether the response carries `Vary: Accept-Encoding`.
    vary: Option<bool>,
}

fn comp_level() -> i32 {
    6
}

fn lgwin() -> i32 {
    19
}

/// Initial size of the output buffer. The output is drained after each chunk.
const BUFFER_BYTES: usize = 4096;

/// The plugin: offers the coding to the exchange.
pub(crate) struct Brotli(Arc<dyn ResponseCoding>);

impl PluginFactory for Brotli {
    const NAME: &'static str = "brotli";
    const PRIORITY: i32 = 996;
    type Config = BrotliSettings;

    fn build(config: BrotliSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let mode = match config.mode {
            1 => BrotliEncoderMode::BROTLI_MODE_TEXT,
            2 => BrotliEncoderMode::BROTLI_MODE_FONT,
            _ => BrotliEncoderMode::BROTLI_MODE_GENERIC,
        };
        let params = BrotliEncoderParams {
            mode,
            quality: config.comp_level,
            lgwin: config.lgwin,
            lgblock: config.lgblock,
            ..BrotliEncoderParams::default()
        };
        let terms = CompressionRules {
            types: config.types,
            length_min: config.min_length,
            http_version: config.http_version,
            varies: config.vary.unwrap_or(false),
            statuses: &[],
        };
        let begin = move || CompressorWriter::with_params(Vec::new(), BUFFER_BYTES, &params);
        Ok(Brotli(CompressionCoding { name: "br", terms, begin }.offer()))
    }
}

impl Plugin for Brotli {
    fn phases(&self) -> PhaseSet {
        PhaseSet::RESPONSE_HEAD
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, _: &mut ResponseHead) {
        ex.offer_coding(self.0.clone());
    }
}

impl BodyEncoder for CompressorWriter<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn end(self) -> std::io::Result<Vec<u8>> {
        Ok(self.into_inner())
    }
}
