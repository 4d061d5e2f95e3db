//! Resolves `$ref` within a schema (JSON Schema draft-07 §8.3), and bounds the steps of an evaluation.
//!
//! A schema that refers to itself may take time that doubles with each level of a value. The steps of one
//! evaluation are bounded whatever the size of the value, and a value that needs more is refused, even under
//! `not`.

use std::cell::Cell;

use serde_json::Value;

/// Steps of one evaluation. A schema node applied to a value is a step, and large values cost more.
const STEPS_MAX: usize = 1_000_000;

/// The references of one schema during one evaluation.
pub(super) struct SchemaReferences<'s> {
    root: &'s Value,
    left: Cell<usize>,
    is_aborted: Cell<bool>,
}

impl<'s> SchemaReferences<'s> {
    pub(super) fn new(root: &'s Value) -> SchemaReferences<'s> {
        SchemaReferences { root, left: Cell::new(STEPS_MAX), is_aborted: Cell::new(false) }
    }

    /// Takes steps from the budget; `false` if it is exhausted.
    pub(super) fn spend(&self, steps: usize) -> bool {
        let left = self.left.get().checked_sub(steps);
        // 0 after an underflow, so that smaller steps fail from then on too.
        self.left.set(left.unwrap_or(0));
        if left.is_none() {
            self.give_up();
        }
        left.is_some()
    }

    /// The referenced schema, or the reason why there is none.
    pub(super) fn follow(&self, reference: &Value) -> Result<&'s Value, String> {
        resolve(self.root, reference).ok_or_else(|| {
            self.give_up();
            format!("its schema refers to {reference}, which does not exist")
        })
    }

    /// Marks the evaluation as aborted: its results are unreliable from here on.
    pub(super) fn give_up(&self) {
        self.is_aborted.set(true);
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.is_aborted.get()
    }
}

/// The part of a schema that a reference names: `#` is the whole, `#/definitions/name` a part of it (RFC
/// 6901), without percent-encoding. Other documents are not fetched.
pub(super) fn resolve<'s>(root: &'s Value, reference: &Value) -> Option<&'s Value> {
    root.pointer(reference.as_str()?.strip_prefix('#')?)
}

/// Steps that a schema node costs on a value, without those of its members and elements.
pub(super) fn steps(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len() / 64,
        Value::Array(items) => items.len() / 8,
        Value::Object(members) => members.len() / 4,
        _ => 0,
    }
}

/// The number of values that a value is made of, itself included.
pub(super) fn parts(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(parts).sum(),
        Value::Object(members) => members.values().map(parts).sum(),
        _ => 0,
    }
}
