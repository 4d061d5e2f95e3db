//! HTTP rules: the `google.api.http` options of a proto, which map requests to methods.

use std::borrow::Cow;
use std::cmp::Ordering;

use percent_encoding::percent_decode;
use prost_reflect::{DynamicMessage, MessageDescriptor, MethodDescriptor, Value};
use yumen_plugin::proto::ProtoDescriptors;
use yumen_proto_json::FieldCardinality;

use super::request;

/// Deepest nesting of `additional_bindings`; the specification allows one level.
const DEPTH_MAX: usize = 2;

/// One mapping of requests to a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HttpRule {
    /// HTTP method; `*` matches all.
    pub(super) verb: String,
    pub(super) path: PathTemplate,
    pub(super) body: HttpRuleBody,
    /// The field of the message that is the whole response body.
    pub(super) response_body: Option<String>,
}

/// The part of the message that the request body is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HttpRuleBody {
    Nothing,
    /// All fields that are not in the path.
    All,
    /// This field.
    Field(String),
}

/// A compiled path template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathTemplate {
    segments: Vec<TemplateSegment>,
    /// Custom verb: the end of the last segment after a colon.
    suffix: Option<String>,
    /// Fields with the segments that they capture.
    variables: Vec<PathVariable>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum TemplateSegment {
    Literal(String),
    One,
    /// `**`: any number of segments, also none; only at the end.
    Rest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PathVariable {
    field: String,
    from: usize,
    until: usize,
}

/// All HTTP rules of a method; none without the option.
pub(super) fn of(method: &MethodDescriptor, protos: &ProtoDescriptors) -> Result<Vec<HttpRule>, String> {
    let Some(option) = protos.pool().get_extension_by_name("google.api.http") else { return Ok(Vec::new()) };
    let options = method.options();
    if !options.has_extension(&option) {
        return Ok(Vec::new());
    }
    let mut rules = Vec::new();
    if let Value::Message(rule) = &*options.get_extension(&option) {
        collect(rule, method, &mut rules, 0)?;
    }
    Ok(rules)
}

fn collect(
    rule: &DynamicMessage,
    method: &MethodDescriptor,
    rules: &mut Vec<HttpRule>,
    depth: usize,
) -> Result<(), String> {
    let (input, output) = (method.input(), method.output());
    if let Some((verb, path)) = pattern(rule) {
        let path = PathTemplate::parse(&path)?;
        let bound = path.variables.iter().map(|variable| &variable.field);
        if let Some(unknown) = bound.into_iter().find(|field| !resolves(&input, field)) {
            return Err(format!("its path names \"{unknown}\", which {} has not", input.name()));
        }
        let known = |of: &MessageDescriptor, field: String| match of.get_field_by_name(&field) {
            Some(_) => Ok(field),
            None => Err(format!("its body is \"{field}\", which {} has not", of.name())),
        };
        let body = match text(rule, "body") {
            body if body.is_empty() => HttpRuleBody::Nothing,
            body if body == "*" => HttpRuleBody::All,
            field => HttpRuleBody::Field(known(&input, field)?),
        };
        let response_body = Some(text(rule, "response_body")).filter(|field| !field.is_empty());
        let response_body = response_body.map(|field| known(&output, field)).transpose()?;
        rules.push(HttpRule { verb, path, body, response_body });
    }
    let more = rule.get_field_by_name("additional_bindings");
    for one in more.as_deref().and_then(Value::as_list).into_iter().flatten() {
        if let Value::Message(one) = one
            && depth < DEPTH_MAX
        {
            collect(one, method, rules, depth + 1)?;
        }
    }
    Ok(())
}

/// HTTP method and path template of a rule.
fn pattern(rule: &DynamicMessage) -> Option<(String, String)> {
    for verb in ["get", "put", "post", "delete", "patch"] {
        if rule.has_field_by_name(verb) {
            return Some((verb.to_ascii_uppercase(), text(rule, verb)));
        }
    }
    let custom = rule.get_field_by_name("custom").filter(|_| rule.has_field_by_name("custom"))?;
    let custom = custom.as_message()?;
    Some((text(custom, "kind"), text(custom, "path")))
}

fn text(of: &DynamicMessage, field: &str) -> String {
    of.get_field_by_name(field).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Whether `a.b` is a field of the message within the nesting limit.
fn resolves(of: &MessageDescriptor, name: &str) -> bool {
    matches!(request::path(of, name), Ok(Some(path)) if path.last().is_some_and(|field| field.form != FieldCardinality::Map))
}

impl PathTemplate {
    /// Parses a template such as `/v1/{name=shelves/*}/books/{book.id}:read`.
    pub(super) fn parse(template: &str) -> Result<PathTemplate, String> {
        let refused = |why: &str| format!("its path \"{template}\" {why}");
        let mut rest = template.strip_prefix('/').ok_or_else(|| refused("does not begin with a slash"))?;
        let mut path = PathTemplate { segments: Vec::new(), suffix: None, variables: Vec::new() };
        loop {
            rest = match rest.strip_prefix('{') {
                Some(inside) => {
                    let (variable, after) =
                        inside.split_once('}').ok_or_else(|| refused("has an open brace"))?;
                    // `{name}` stands for `{name=*}` (`google.api.http`).
                    let (field, pattern) = variable.split_once('=').unwrap_or((variable, "*"));
                    let from = path.segments.len();
                    path.segments.extend(pattern.split('/').map(TemplateSegment::of));
                    let (field, until) = (field.trim().to_owned(), path.segments.len());
                    path.variables.push(PathVariable { field, from, until });
                    after
                }
                None => {
                    let end = rest.find(['/', ':']).unwrap_or(rest.len());
                    path.segments.push(TemplateSegment::of(&rest[..end]));
                    &rest[end..]
                }
            };
            match rest.split_at_checked(1) {
                None => break,
                Some((":", suffix)) if !suffix.contains('/') => {
                    path.suffix = Some(suffix.to_owned());
                    break;
                }
                Some(("/", after)) => rest = after,
                Some(_) => return Err(refused("has characters other than a slash after a variable")),
            }
        }
        let last = path.segments.len() - 1;
        // `**` must be the last segment (`google.api.http`).
        if path.segments[..last].contains(&TemplateSegment::Rest) {
            return Err(refused("has `**` before its end"));
        }
        Ok(path)
    }

    /// Matches a path and returns its variables.
    pub(super) fn matches(&self, path: &TemplateSegments<'_>) -> Option<Vec<(&str, String)>> {
        let mut raw = Cow::Borrowed(path.0.as_slice());
        if let Some(suffix) = &self.suffix {
            let last = raw.last()?.strip_suffix(suffix.as_bytes())?.strip_suffix(b":")?;
            *raw.to_mut().last_mut()? = last;
        }
        let is_open = self.segments.last() == Some(&TemplateSegment::Rest);
        let fixed = self.segments.len() - usize::from(is_open);
        if raw.len() < fixed || !is_open && raw.len() > fixed {
            return None;
        }
        for (segment, found) in self.segments[..fixed].iter().zip(raw.iter()) {
            match segment {
                TemplateSegment::Literal(literal) if *decoded(found) != *literal.as_bytes() => return None,
                TemplateSegment::One if found.is_empty() => return None,
                _ => {}
            }
        }
        let value = |variable: &PathVariable| {
            let until = if variable.until > fixed { raw.len() } else { variable.until };
            let found = &raw[variable.from..until];
            let value = if self.is_one_segment(variable) {
                decoded(found.first().copied().unwrap_or_default()).into_owned()
            } else {
                decoded_but_reserved(&found.join(&b'/'))
            };
            String::from_utf8_lossy(&value).into_owned()
        };
        Some(self.variables.iter().map(|variable| (variable.field.as_str(), value(variable))).collect())
    }

    fn is_one_segment(&self, variable: &PathVariable) -> bool {
        variable.until - variable.from == 1 && self.segments[variable.from] != TemplateSegment::Rest
    }

    /// Order of precedence: literals before `*` before `**`, with a custom verb before without.
    pub(super) fn order(&self, other: &PathTemplate) -> Ordering {
        // By the order of the variants of `TemplateSegment`.
        self.segments.cmp(&other.segments).then(other.suffix.is_some().cmp(&self.suffix.is_some()))
    }
}

impl TemplateSegment {
    fn of(text: &str) -> TemplateSegment {
        match text {
            "*" => TemplateSegment::One,
            "**" => TemplateSegment::Rest,
            literal => TemplateSegment::Literal(literal.to_owned()),
        }
    }
}

/// The segments of the upstream target's path.
pub(super) struct TemplateSegments<'a>(Vec<&'a [u8]>);

impl<'a> TemplateSegments<'a> {
    /// Splits the path. `None` if a segment is `.` or `..`, even escaped: the upstream could resolve it to a
    /// path that earlier rules did not check.
    pub(super) fn of(target: &'a [u8]) -> Option<TemplateSegments<'a>> {
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        let segments: Vec<&[u8]> = path.strip_prefix(b"/")?.split(|byte| *byte == b'/').collect();
        let is_dots = |segment: &&[u8]| matches!(&*decoded(segment), b"." | b"..");
        (!segments.iter().any(is_dots)).then_some(TemplateSegments(segments))
    }
}

fn decoded(segment: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(segment).into()
}

/// Decodes a variable of several segments by `google.api.http`: characters that RFC 6570 reserves stay
/// escaped, so that an escaped slash is not confused with a separator.
fn decoded_but_reserved(path: &[u8]) -> Vec<u8> {
    let mut captures = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let escaped = rest.get(..3).filter(|_| *first == b'%');
        let byte = escaped.and_then(|escaped| match *decoded(escaped) {
            [byte] if !b":/?#[]@!$&'()*+,;=".contains(&byte) => Some(byte),
            _ => None,
        });
        captures.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &rest[3..] } else { after };
    }
    captures
}

#[cfg(test)]
mod tests;
