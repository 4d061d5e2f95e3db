//! Resources as users write them: schema, defaults, validation, problem paths.
//!
//! Depends on neither HTTP nor a runtime.

pub mod document;
pub mod duplicate_keys;
mod hint;
pub mod json_text;
pub mod masking;
pub mod node;
pub mod object_text;
pub mod resource;
pub mod schema;
mod text_spans;
pub mod url;
pub mod yaml;

pub use hint::{closest, is_slip_of, suggestion};
pub use node::NodeConfig;
pub use resource::{Kind, Resource, ResourceType, decode};
pub use schema::{InvalidSettings, RuleViolation};
pub use text_spans::{FoundSpan, SpannedValue, TextSpans};
