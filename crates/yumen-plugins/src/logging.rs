//! The common part of all logger plugins: settings, entries, conditions on bodies, and the sink.
//!
//! A logger is a [`LoggerKind`]: its own settings, the address of its sink and its payload form. [`LoggerPlugin`] runs
//! it. Nothing here knows a concrete logger.

pub(crate) mod entry;
mod format;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzzed;
mod json_encoder;
pub(crate) mod json_text;
mod logger;
mod settings;

pub(crate) use entry::LogEntry;
pub(crate) use json_encoder::JsonEncoder;
pub(crate) use logger::{LoggerKind, LoggerParts, LoggerPlugin, SinkPlan, post};
pub(crate) use settings::{
    BatchSettings, BodySettings, FormatSettings, LoggerMetadata, LoggerSettings, batch_policy,
};
