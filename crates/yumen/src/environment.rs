//! Environment variables for the configuration.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// Values of environment variables that the configuration has read, which no output may show.
#[derive(Default)]
pub(crate) struct ReadVariables(Mutex<BTreeSet<String>>);

impl ReadVariables {
    /// Reads a variable and notes its value.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        let value = variable(name)?;
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A reference may take a member of a variable with JSON.
        if let Ok(Value::Object(members)) = serde_json::from_str(&value) {
            values.extend(members.values().filter_map(Value::as_str).map(str::to_owned));
        }
        values.insert(value.clone());
        Some(value)
    }

    /// The values.
    pub(crate) fn values(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// Value of an environment variable, for documents and for `$env://` references.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
