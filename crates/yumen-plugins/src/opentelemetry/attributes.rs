//! Attributes of spans in the wire format of OTLP (opentelemetry-proto, `common.proto`).

use yumen_base::ProtobufWriter;
use yumen_plugin::Exchange;
use yumen_plugin::vars::Var;

/// The field `attributes` of a span.
const SPAN_ATTRIBUTES: u32 = 9;

/// Fields of `KeyValue` and `AnyValue`.
const KEY: u32 = 1;
const VALUE: u32 = 2;
const STRING_VALUE: u32 = 1;
const BOOL_VALUE: u32 = 2;
const INT_VALUE: u32 = 3;
const DOUBLE_VALUE: u32 = 4;

/// Writes the attributes of one message into its field `field`.
pub(super) struct AttributeWriter<'w, 'o> {
    message: &'w mut ProtobufWriter<'o>,
    field: u32,
}

impl<'w, 'o> AttributeWriter<'w, 'o> {
    /// A writer for the attributes of a span.
    pub(super) fn of_span(message: &'w mut ProtobufWriter<'o>) -> AttributeWriter<'w, 'o> {
        AttributeWriter { message, field: SPAN_ATTRIBUTES }
    }

    pub(super) fn new(message: &'w mut ProtobufWriter<'o>, field: u32) -> AttributeWriter<'w, 'o> {
        AttributeWriter { message, field }
    }

    fn pair(&mut self, key: &str, write: impl FnOnce(&mut ProtobufWriter<'_>)) {
        self.message.message(self.field, |pair| {
            pair.text(KEY, key);
            pair.message(VALUE, write);
        });
    }

    pub(super) fn text(&mut self, key: &str, value: impl AsRef<[u8]>) {
        self.pair(key, |any| any.text(STRING_VALUE, value));
    }

    /// A text that is not empty.
    pub(super) fn optional(&mut self, key: &str, value: impl AsRef<[u8]>) {
        if !value.as_ref().is_empty() {
            self.text(key, value);
        }
    }

    pub(super) fn integer(&mut self, key: &str, value: i64) {
        self.pair(key, |any| any.varint(INT_VALUE, value as u64));
    }

    pub(super) fn number(&mut self, key: &str, value: f64) {
        self.pair(key, |any| any.double(DOUBLE_VALUE, value));
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.pair(key, |any| any.varint(BOOL_VALUE, value.into()));
    }
}

/// The attributes that the settings add.
#[derive(Debug)]
pub(super) struct AttributeRules {
    /// Variables of the request, read before other plugins change it.
    early: Vec<(String, Var)>,
    /// Variables of the response.
    late: Vec<(String, Var)>,
    fields: Vec<FieldRule>,
}

/// Request fields that become attributes. Names are in lower case.
#[derive(Debug)]
enum FieldRule {
    Name(String),
    Prefix(String),
}

impl AttributeRules {
    pub(super) fn new(variables: &[String], fields: &[String]) -> AttributeRules {
        let variables = variables.iter().map(|name| {
            let name = name.trim_start_matches('$').to_owned();
            let variable = Var::parse(&name);
            (name, variable)
        });
        let (early, late) = variables.partition(|(_, variable)| variable.is_of_request());
        let rule = |name: &String| match name.to_ascii_lowercase() {
            name if name.ends_with('*') => FieldRule::Prefix(name.trim_end_matches('*').to_owned()),
            name => FieldRule::Name(name),
        };
        AttributeRules { early, late, fields: fields.iter().map(rule).collect() }
    }

    pub(super) fn write_early(&self, ex: &Exchange<'_>, to: &mut AttributeWriter<'_, '_>) {
        write_variables(&self.early, ex, to);
        for rule in &self.fields {
            match rule {
                FieldRule::Name(name) => {
                    if let Some(value) = ex.request.fields.get(name) {
                        to.text(name, value);
                    }
                }
                FieldRule::Prefix(prefix) => write_fields(prefix, ex, to),
            }
        }
    }

    pub(super) fn write_late(&self, ex: &Exchange<'_>, to: &mut AttributeWriter<'_, '_>) {
        write_variables(&self.late, ex, to);
    }
}

fn write_variables(variables: &[(String, Var)], ex: &Exchange<'_>, to: &mut AttributeWriter<'_, '_>) {
    for (name, variable) in variables {
        if let Some(value) = variable.get(ex) {
            to.text(name, value);
        }
    }
}

fn write_fields(prefix: &str, ex: &Exchange<'_>, to: &mut AttributeWriter<'_, '_>) {
    let mut written: Vec<String> = Vec::new();
    for (name, value) in ex.request.fields.iter() {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        // Keys of attributes must be unique.
        if name.starts_with(prefix) && !written.contains(&name) {
            to.text(&name, value);
            written.push(name);
        }
    }
}
