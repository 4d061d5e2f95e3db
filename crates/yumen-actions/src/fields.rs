//! Edits of fields, for requests and responses.

use yumen_config::resource::FieldEditsSpec;
use yumen_http::{FieldName, Fields, KnownField, RequestHead, ResponseHead};
use yumen_plugin::OmittedForwarding;

/// A field to set or add.
#[derive(Debug, Clone)]
struct PreparedField {
    text: Box<str>,
    name: Option<FieldName>,
    value: Box<[u8]>,
}

/// Edits of fields, in the order remove, set, add.
#[derive(Debug, Clone, Default)]
pub struct FieldEdits {
    remove: Box<[Box<str>]>,
    set: Box<[PreparedField]>,
    add: Box<[PreparedField]>,
    /// The last `Host` among the fields to set.
    host: Option<Box<[u8]>>,
    /// The forwarding fields among those to remove.
    omitted: OmittedForwarding,
}

fn is_host(name: &str) -> bool {
    KnownField::of(name.as_bytes()) == KnownField::Host
}

fn prepared(pairs: Option<&Vec<(String, String)>>) -> Box<[PreparedField]> {
    let field = |(name, value): &(String, String)| PreparedField {
        text: name.as_str().into(),
        name: FieldName::new(name),
        value: value.as_bytes().into(),
    };
    pairs.into_iter().flatten().map(field).collect()
}

impl FieldEdits {
    /// Compiles edits; absent ones change nothing.
    pub fn new(written: Option<&FieldEditsSpec>) -> FieldEdits {
        let Some(written) = written else { return FieldEdits::default() };
        let mut omitted = OmittedForwarding::default();
        written.remove.iter().flatten().for_each(|name| omitted.omit(name));
        let mut hosts = written.set.iter().flatten().filter(|(name, _)| is_host(name));
        FieldEdits {
            remove: written.remove.iter().flatten().map(|name| name.as_str().into()).collect(),
            set: prepared(written.set.as_ref()),
            add: prepared(written.add.as_ref()),
            host: hosts.next_back().map(|(_, value)| value.as_bytes().into()),
            omitted,
        }
    }

    /// Whether there are no edits.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// The value of `Host` for the upstream, if the edits set it.
    pub fn host(&self) -> Option<&[u8]> {
        self.host.as_deref()
    }

    /// The forwarding fields that the gateway must not add, because the edits remove them.
    pub fn omitted(&self) -> OmittedForwarding {
        self.omitted
    }

    /// Edits the fields of a request. `Host` is part of the target and stays, see [`FieldEdits::host`].
    pub fn apply_to_request(&self, head: &mut RequestHead) {
        // A request has exactly one `Host` (RFC 9112 §3.2).
        self.apply(&mut head.fields, |name| !is_host(name));
    }

    /// Edits the fields of a response.
    pub fn apply_to_response(&self, head: &mut ResponseHead) {
        self.apply(&mut head.fields, |_| true);
    }

    fn apply(&self, fields: &mut Fields, applies: impl Fn(&str) -> bool) {
        for name in self.remove.iter().filter(|name| applies(name)) {
            fields.remove(name);
        }
        for field in self.set.iter().filter(|field| applies(&field.text)) {
            if let Some(name) = &field.name {
                fields.put(name, &field.value);
            }
        }
        for field in self.add.iter().filter(|field| applies(&field.text)) {
            fields.add(&field.text, &field.value);
        }
    }
}

#[cfg(test)]
mod tests;
