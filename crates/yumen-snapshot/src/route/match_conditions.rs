//! Conditions on fields, query arguments and the protocol of a request, and patterns of paths.

use std::borrow::Cow;

use yumen_config::masking::is_secret_field;
use yumen_http::{KnownField, uri};
use yumen_plugin::{BacktrackBudget, Exchange, RegexPattern};

/// The part of a request that fails its condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailedPart {
    Protocol,
    Header,
    Query,
}

/// Conditions on the head of a request beyond host, path and method.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MatchConditions {
    /// Conditions on fields.
    pub headers: Box<[FieldCondition]>,
    /// Conditions on query arguments, decoded.
    pub queries: Box<[FieldCondition]>,
    /// Whether only gRPC calls match.
    pub is_grpc: bool,
}

/// A condition on the first value of a name.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldCondition {
    /// The name.
    pub name: Box<str>,
    /// The condition.
    pub test: ValueTest,
}

/// A condition on a value.
#[derive(Debug, Clone)]
pub enum ValueTest {
    /// The value is this one.
    Equals(Box<[u8]>),
    /// The whole value matches a pattern, which is the text.
    Matches(Box<str>, RegexPattern),
    /// There is no value.
    Absent,
}

impl PartialEq for ValueTest {
    fn eq(&self, other: &ValueTest) -> bool {
        match (self, other) {
            (ValueTest::Equals(own), ValueTest::Equals(others)) => own == others,
            // Patterns of one text are equal.
            (ValueTest::Matches(own, _), ValueTest::Matches(others, _)) => own == others,
            (ValueTest::Absent, ValueTest::Absent) => true,
            _ => false,
        }
    }
}

impl FieldCondition {
    fn holds(&self, value: Option<&[u8]>, ex: &Exchange<'_>) -> bool {
        match (&self.test, value) {
            (ValueTest::Absent, value) => value.is_none(),
            (_, None) => false,
            (ValueTest::Equals(wanted), Some(value)) => **wanted == *value,
            (ValueTest::Matches(_, pattern), Some(value)) => ex.decided(pattern.is_match(value, ex.budget())),
        }
    }

    /// The condition and the value found, for explanations. Values of fields that grant access are hidden.
    fn describe(&self, kind: &str, value: Option<&[u8]>) -> String {
        let found = value.map_or("absent".into(), |value| format!("\"{}\"", String::from_utf8_lossy(value)));
        let wanted = match &self.test {
            ValueTest::Equals(wanted) => format!("\"{}\"", String::from_utf8_lossy(wanted)),
            ValueTest::Matches(pattern, _) => format!("a match of {pattern}"),
            ValueTest::Absent => "absent".into(),
        };
        match (is_secret_field(&self.name), value) {
            (true, Some(_)) => format!("the {kind} {} has another value", self.name),
            (true, None) => format!("the {kind} {} is absent", self.name),
            (false, _) => format!("the {kind} {} is {found}, not {wanted}", self.name),
        }
    }
}

/// Decodes a part of a query: `+` is a space, as in forms.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'+') {
        return uri::decode_escapes(text);
    }
    // Before the escapes are decoded, so that `%2B` remains a plus sign.
    let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Cow::Owned(uri::decode_escapes(&spaced).into_owned())
}

/// The first query argument of a name, decoded.
fn query_value<'q>(ex: &'q Exchange<'_>, name: &str) -> Option<Cow<'q, [u8]>> {
    let mut arguments = uri::query_arguments(ex.request.query()?);
    let (_, value) = arguments.find(|(key, _)| *decoded(key) == *name.as_bytes())?;
    Some(decoded(value))
}

/// Whether the media type is that of gRPC, alone or with a message format.
fn is_grpc(ex: &Exchange<'_>) -> bool {
    let rest = ex.request.fields.known(KnownField::ContentType);
    let rest = rest.and_then(|value| value.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

impl MatchConditions {
    /// The first part of the request that fails.
    pub(crate) fn fails(&self, ex: &Exchange<'_>) -> Option<FailedPart> {
        if self.is_grpc && !is_grpc(ex) {
            return Some(FailedPart::Protocol);
        }
        self.failing_header(ex)
            .map(|_| FailedPart::Header)
            .or_else(|| self.failing_query(ex).map(|_| FailedPart::Query))
    }

    fn failing_header(&self, ex: &Exchange<'_>) -> Option<&FieldCondition> {
        self.headers.iter().find(|one| !one.holds(ex.request.fields.get(&one.name), ex))
    }

    fn failing_query(&self, ex: &Exchange<'_>) -> Option<&FieldCondition> {
        self.queries.iter().find(|one| !one.holds(query_value(ex, &one.name).as_deref(), ex))
    }

    /// Why a request fails, in words.
    pub(crate) fn explain(&self, ex: &Exchange<'_>) -> String {
        let text = match self.fails(ex) {
            Some(FailedPart::Header) => {
                self.failing_header(ex).map(|one| one.describe("header", ex.request.fields.get(&one.name)))
            }
            Some(FailedPart::Query) => self
                .failing_query(ex)
                .map(|one| one.describe("query argument", query_value(ex, &one.name).as_deref())),
            Some(FailedPart::Protocol) => Some("the request is no gRPC call".to_owned()),
            None => None,
        };
        text.unwrap_or_default()
    }
}

/// A pattern of paths.
#[derive(Debug, Clone)]
pub struct PathPattern {
    /// The pattern as written.
    pub text: Box<str>,
    /// The bytes with which every match begins.
    pub(crate) begin: Box<[u8]>,
    /// Whether upper and lower case are equal.
    pub(crate) ignores_case: bool,
    pub(crate) regex: RegexPattern,
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &PathPattern) -> bool {
        (&self.text, self.ignores_case) == (&other.text, other.ignores_case)
    }
}

impl PathPattern {
    /// Whether a path matches. A match that exceeds the backtracking budget leaves the exchange undecided.
    pub(crate) fn admits(&self, path: &[u8], ex: &Exchange<'_>) -> bool {
        // Most patterns of a table begin with other bytes, so few are run.
        let Some(begin) = path.get(..self.begin.len()) else { return false };
        let begins = match self.ignores_case {
            true => begin.eq_ignore_ascii_case(&self.begin),
            false => *begin == *self.begin,
        };
        begins && ex.decided(self.regex.is_match(path, ex.budget()))
    }

    /// [`PathPattern::admits`] outside of an exchange.
    pub(crate) fn fits(&self, path: &[u8]) -> bool {
        self.regex.is_match(path, &BacktrackBudget::default()) == Ok(true)
    }
}

/// The literal bytes with which every match of a pattern begins.
pub(crate) fn literal_begin(pattern: &str) -> Box<[u8]> {
    // An alternative may begin with other bytes.
    if pattern.contains('|') {
        return Box::default();
    }
    let special = |byte: u8| b"\\.+*?()[]{}^$".contains(&byte);
    let bytes = pattern.as_bytes();
    let end = bytes.iter().position(|byte| special(*byte)).unwrap_or(bytes.len());
    let repeats = bytes.get(end).is_some_and(|byte| b"*?{".contains(byte));
    // A repetition that admits zero times applies to the last literal byte.
    let end = if repeats { end.saturating_sub(1) } else { end };
    bytes[..end].into()
}

#[cfg(test)]
mod tests;
