//! Edits of fields, for requests and responses.

use std::borrow::Cow;

use yumen_config::resource::FieldEditsSpec;
use yumen_http::{FieldName, Fields, KnownField, ResponseHead};
use yumen_plugin::{Exchange, OmittedForwarding, VarTemplate};

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
    /// Values with variables, in place of those of the fields.
    templates: Option<Box<ValueTemplates>>,
}

/// Values with variables, by the position of their field.
#[derive(Debug, Clone)]
struct ValueTemplates {
    set: Box<[VarTemplate]>,
    add: Box<[VarTemplate]>,
}

/// Values for one exchange; an empty one is not sent.
struct RenderedValues {
    set: Vec<Vec<u8>>,
    add: Vec<Vec<u8>>,
}

impl ValueTemplates {
    fn new(written: &FieldEditsSpec) -> ValueTemplates {
        let list = |pairs: Option<&Vec<(String, String)>>| {
            pairs.into_iter().flatten().map(|(_, value)| VarTemplate::parse(value)).collect()
        };
        ValueTemplates { set: list(written.set.as_ref()), add: list(written.add.as_ref()) }
    }

    fn render(&self, ex: &Exchange<'_>) -> RenderedValues {
        let list =
            |templates: &[VarTemplate]| templates.iter().map(|template| rendered(template, ex)).collect();
        RenderedValues { set: list(&self.set), add: list(&self.add) }
    }
}

fn rendered(template: &VarTemplate, ex: &Exchange<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    template.render(ex, &mut out);
    out
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
            templates: written.variables.then(|| Box::new(ValueTemplates::new(written))),
        }
    }

    /// Whether there are no edits.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// The value of `Host` for the upstream, if the edits set it.
    pub fn host(&self, ex: &Exchange<'_>) -> Option<Cow<'_, [u8]>> {
        let fixed = self.host.as_deref()?;
        let Some(templates) = &self.templates else { return Some(Cow::Borrowed(fixed)) };
        let at = self.set.iter().rposition(|field| is_host(&field.text))?;
        let mut host = rendered(&templates.set[at], ex);
        // A line break of a variable would begin another field.
        host.retain(|byte| *byte > b' ' && *byte != 0x7f);
        (!host.is_empty()).then_some(Cow::Owned(host))
    }

    /// The forwarding fields that the gateway must not add, because the edits remove them.
    pub fn omitted(&self) -> OmittedForwarding {
        self.omitted
    }

    /// Edits the fields of a request. `Host` is part of the target and stays, see [`FieldEdits::host`].
    pub fn apply_to_request(&self, ex: &mut Exchange<'_>) {
        let values = self.templates.as_ref().map(|templates| templates.render(ex));
        // A request has exactly one `Host` (RFC 9112 §3.2).
        self.apply(&mut ex.request.fields, values.as_ref(), |name| !is_host(name));
    }

    /// Edits the fields of a response.
    pub fn apply_to_response(&self, ex: &Exchange<'_>, head: &mut ResponseHead) {
        let values = self.templates.as_ref().map(|templates| templates.render(ex));
        self.apply(&mut head.fields, values.as_ref(), |_| true);
    }

    fn apply(&self, fields: &mut Fields, values: Option<&RenderedValues>, applies: impl Fn(&str) -> bool) {
        for name in self.remove.iter().filter(|name| applies(name)) {
            fields.remove(name);
        }
        for (at, field) in self.set.iter().enumerate().filter(|(_, field)| applies(&field.text)) {
            let value = values.map_or(&*field.value, |values| &values.set[at]);
            match &field.name {
                _ if values.is_some() && value.is_empty() => drop(fields.remove(&field.text)),
                Some(name) => fields.put(name, value),
                None => {}
            }
        }
        for (at, field) in self.add.iter().enumerate().filter(|(_, field)| applies(&field.text)) {
            let value = values.map_or(&*field.value, |values| &values.add[at]);
            if values.is_none() || !value.is_empty() {
                fields.add(&field.text, value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
