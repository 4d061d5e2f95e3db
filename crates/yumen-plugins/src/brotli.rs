//! `brotli`: compresses responses for clients that accept brotli.

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
    /// The media types that are compressed, or `*` for all.
    #[serde(default)]
    types: CompressibleTypes,
    /// Answers of fewer bytes are left alone, where their length is known.
    #[serde(default = "compression::min_length")]
    #[schemars(range(min = 1))]
    min_length: u64,
    /// What the bodies are: 0 anything, 1 text, 2 fonts.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2))]
    mode: u8,
    /// From fast to small. From 10 on, an answer costs tens of megabytes.
    #[serde(default = "comp_level")]
    #[schemars(range(min = 0, max = 11))]
    comp_level: i32,
    /// Size of the window as a power of two; each answer on its way holds a few windows of memory.
    #[serde(default = "lgwin")]
    #[schemars(extend("enum" = [0, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24]))]
    lgwin: i32,
    /// Largest block as a power of two; 0 leaves it to the level.
    #[serde(default)]
    #[schemars(extend("enum" = [0, 16, 17, 18, 19, 20, 21, 22, 23, 24]))]
    lgblock: i32,
    /// The oldest version of HTTP that gets compressed answers.
    #[serde(default = "compression::http_version")]
    #[schemars(schema_with = "compression::http_version_schema")]
    http_version: f64,
    /// Whether the answer says `Vary: Accept-Encoding`.
    vary: Option<bool>,
}

fn comp_level() -> i32 {
    6
}

fn lgwin() -> i32 {
    19
}

/// Size of the output buffer; output is taken after each chunk.
const BUFFER_BYTES: usize = 4096;

/// The plugin.
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
