//! Where `$ref` leads within a schema (JSON Schema draft-07 §8.3), and how often it is gone after.
//!
//! A schema that comes back to itself may take time that doubles with each level of a value. What one value may cost is
//! bounded, and whoever goes beyond is refused, even where a schema asks for what does *not* fit.

use std::cell::Cell;

use serde_json::Value;

/// So many times for each part of the value.
const FOLLOWED_MAX: usize = 512;

/// The references of one schema, while one value is judged.
pub(super) struct SchemaReferences<'s> {
    root: &'s Value,
    left: Cell<usize>,
    is_aborted: Cell<bool>,
}

impl<'s> SchemaReferences<'s> {
    pub(super) fn new(root: &'s Value, instance: &Value) -> SchemaReferences<'s> {
        let left = Cell::new(parts(instance).saturating_mul(FOLLOWED_MAX));
        SchemaReferences { root, left, is_aborted: Cell::new(false) }
    }

    /// The schema that is referred to; else why there is none.
    pub(super) fn follow(&self, reference: &Value) -> Result<&'s Value, String> {
        let Some(left) = self.left.get().checked_sub(1) else {
            self.give_up();
            return Err("its schema refers to itself too often to be judged".to_owned());
        };
        self.left.set(left);
        resolve(self.root, reference).ok_or_else(|| {
            self.give_up();
            format!("its schema refers to {reference}, which is not there")
        })
    }

    /// Nothing that is said of the value from here on can be relied on.
    pub(super) fn give_up(&self) {
        self.is_aborted.set(true);
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.is_aborted.get()
    }
}

/// The part of a schema that a reference names: `#` is the whole, `#/definitions/name` a part of it (RFC 6901), without
/// percent-encoding. Other documents are not fetched.
pub(super) fn resolve<'s>(root: &'s Value, reference: &Value) -> Option<&'s Value> {
    root.pointer(reference.as_str()?.strip_prefix('#')?)
}

/// Of how many values a value is made, itself included.
fn parts(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(parts).sum(),
        Value::Object(members) => members.values().map(parts).sum(),
        _ => 0,
    }
}
