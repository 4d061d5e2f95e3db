//! Settings with `$variables` and `$1` groups, compiled when the plugin is built.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use yumen_http::KnownField;
use yumen_plugin::pattern::PatternCaptures;
use yumen_plugin::vars::is_data_value;
use yumen_plugin::{Exchange, PluginBuildContext, VarTemplate};

use crate::target_builder::TargetBuilder;

/// A status for a final response: one outside 200 to 999 becomes the nearest valid one. The schemas follow
/// APISIX and admit more.
pub(crate) fn final_status(status: u64) -> u16 {
    status.clamp(200, 999) as u16
}

/// Field names and values in the order of the settings.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "serde_json::Map<String, serde_json::Value>")]
pub(crate) struct HeaderEntries(pub(crate) Vec<(String, Vec<String>)>);

impl From<serde_json::Map<String, serde_json::Value>> for HeaderEntries {
    fn from(map: serde_json::Map<String, serde_json::Value>) -> HeaderEntries {
        HeaderEntries(map.into_iter().map(|(name, value)| (name, values(value))).collect())
    }
}

fn values(value: serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::String(text) => vec![text],
        serde_json::Value::Array(many) => many.into_iter().flat_map(values).collect(),
        other => vec![other.to_string()],
    }
}

/// Schema of a map from field names to strings or numbers.
pub(crate) fn header_map_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "patternProperties": {"^[^:]+$": {"oneOf": [{"type": "string"}, {"type": "number"}]}},
    })
}

/// Fields to add, set and remove; or a map of fields to set. `A` is the form of the fields to add.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum HeaderEdits<A: Default> {
    Operations(HeaderOperations<A>),
    Set(HeaderEntries),
}

/// Operations on fields.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderOperations<A: Default> {
    #[serde(default)]
    pub(crate) add: A,
    #[serde(default)]
    pub(crate) set: HeaderEntries,
    #[serde(default)]
    pub(crate) remove: Vec<String>,
}

impl<A: Default> HeaderEdits<A> {
    /// The operations of either form.
    pub(crate) fn into_operations(self) -> HeaderOperations<A> {
        match self {
            HeaderEdits::Operations(operations) => operations,
            HeaderEdits::Set(set) => HeaderOperations { set, ..HeaderOperations::default() },
        }
    }
}

#[derive(Debug)]
enum TextTemplatePart {
    Literal(Box<[u8]>),
    Group(usize),
    Variable(VarTemplate),
}

/// A template compiled to literals, groups and variables.
#[derive(Debug)]
pub(crate) struct TextTemplate(Box<[TextTemplatePart]>);

impl TextTemplate {
    /// Compiles `text`; names of variables may contain dots.
    pub(crate) fn parse(text: &str) -> TextTemplate {
        TextTemplate::cut(text, |c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
    }

    /// Compiles `text`; names of variables end before a dot, as APISIX's redirects require.
    pub(crate) fn parse_dotless(text: &str) -> TextTemplate {
        TextTemplate::cut(text, |c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// A template without variables.
    pub(crate) fn plain(text: &str) -> TextTemplate {
        TextTemplate(Box::new([TextTemplatePart::Literal(text.as_bytes().into())]))
    }

    fn cut(text: &str, in_name: impl Fn(char) -> bool) -> TextTemplate {
        if is_data_value(text) {
            return TextTemplate::plain(text);
        }
        let mut pieces = Vec::new();
        let mut literal = 0;
        let mut at = 0;
        while let Some(dollar) = text[at..].find('$').map(|offset| at + offset) {
            let escaped = text[..dollar].ends_with('\\');
            let Some(end) = (!escaped).then(|| name_end(text, dollar + 1, &in_name)).flatten() else {
                at = dollar + 1;
                continue;
            };
            if literal < dollar {
                pieces.push(TextTemplatePart::Literal(text.as_bytes()[literal..dollar].into()));
            }
            match crate::pattern::group(&text[dollar + 1..end]) {
                Some((group, "")) => pieces.push(TextTemplatePart::Group(group)),
                _ => {
                    let template = VarTemplate::parse_written(&braced(&text[dollar + 1..end]));
                    // `${$}` compiles to text.
                    let literal = template.as_plain().map(|text| TextTemplatePart::Literal(text.into()));
                    pieces.push(literal.unwrap_or(TextTemplatePart::Variable(template)));
                }
            }
            literal = end;
            at = end;
        }
        if literal < text.len() {
            pieces.push(TextTemplatePart::Literal(text.as_bytes()[literal..].into()));
        }
        TextTemplate(pieces.into())
    }

    /// The text if the template is constant.
    pub(crate) fn as_plain(&self) -> Option<&[u8]> {
        match self.0.as_ref() {
            [] => Some(b""),
            [TextTemplatePart::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Appends the text with the values of its variables; groups are empty.
    pub(crate) fn render(&self, ex: &Exchange<'_>, out: &mut Vec<u8>) {
        self.fill(ex, None, out);
    }

    /// Appends the text with the values of its variables and groups.
    pub(crate) fn fill(&self, ex: &Exchange<'_>, captures: Option<&MatchGroups>, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                TextTemplatePart::Literal(text) => out.extend_from_slice(text),
                TextTemplatePart::Group(group) => {
                    out.extend_from_slice(
                        captures.and_then(|groups| groups.0.get(*group)).map_or(b"", |g| g),
                    );
                }
                TextTemplatePart::Variable(template) => drop(template.render(ex, out)),
            }
        }
    }

    /// Builds a target from the text and the values of its variables; groups are empty.
    pub(crate) fn fill_target(&self, ex: &Exchange<'_>, target: &mut TargetBuilder) {
        for piece in &self.0 {
            match piece {
                TextTemplatePart::Literal(text) => target.literal(text),
                TextTemplatePart::Group(_) => {}
                TextTemplatePart::Variable(template) => {
                    if let Some((var, default)) = template.as_variable() {
                        target.variable(var, default, ex);
                    }
                }
            }
        }
    }
}

/// The end of the name that begins at `at`, including braces; `None` if there is no name.
fn name_end(text: &str, at: usize, in_name: &impl Fn(char) -> bool) -> Option<usize> {
    if text[at..].starts_with('{') {
        return text[at..].find('}').map(|brace| at + brace + 1).filter(|end| *end > at + 2);
    }
    let end = text[at..].find(|c| !in_name(c)).map_or(text.len(), |length| at + length);
    (end > at).then_some(end)
}

/// A name in braces, as a template of its own.
fn braced(name: &str) -> String {
    if name.starts_with('{') { format!("${name}") } else { format!("${{{name}}}") }
}

/// The groups of a match, copied so that they outlive the matched text.
#[derive(Debug)]
pub(crate) struct MatchGroups(Box<[Box<[u8]>]>);

impl MatchGroups {
    /// Copies the groups of `captures`.
    pub(crate) fn of(captures: &PatternCaptures<'_>) -> MatchGroups {
        let text = |group| captures.get(group).map_or(b"".as_slice(), |(_, text)| text);
        MatchGroups((0..captures.len()).map(|group| text(group).into()).collect())
    }
}

/// Whether `name` is accepted as a field name: visible ASCII without a colon.
pub(crate) fn is_field_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte > 32 && byte < 127 && byte != b':')
}

/// Warns about names in settings of fields that the gateway writes itself, in a request or in any message.
pub(crate) fn warn_of_message_fields<'n>(
    setup: &PluginBuildContext<'_>,
    path: &str,
    is_request: bool,
    names: impl IntoIterator<Item = &'n String>,
) {
    for name in names {
        let known = KnownField::of(name.as_bytes());
        let remedy = match known {
            KnownField::Host if is_request => "remove it: proxy-rewrite sets the Host of requests",
            KnownField::Connection | KnownField::Upgrade => {
                "remove it: enable_websocket of the route admits upgrades"
            }
            KnownField::Server if !is_request => "set server_header to \"\", or remove this setting",
            known if known.is_of_message() => "remove it",
            _ => continue,
        };
        let reason = match known {
            KnownField::Server => "while server_header of yumen.yaml is not empty",
            _ => "as the gateway writes this field itself",
        };
        setup.warn(path, format!("\"{name}\" has no effect {reason}"), remedy);
    }
}
