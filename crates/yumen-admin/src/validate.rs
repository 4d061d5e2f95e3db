//! Whether an object may be written: its schema, its plugins, its conditions, in the words tools know.
//!
//! Judges one object alone; what it refers to is judged where the state is at hand.

use serde_json::Value;
use yumen_config::{Kind, resource};

use crate::api::AdminState;

/// Judges `value` as an object of `kind`; the message is the `error_msg` of the refusal.
pub(crate) fn object(_state: &AdminState, kind: Kind, value: &Value) -> Result<(), String> {
    resource::check(kind, value.clone())
        .map_err(|invalid| format!("invalid configuration: {}", invalid.message))
}
