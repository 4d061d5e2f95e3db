//! Faults of syntax: their place, and a remedy for the frequent ones.

use std::borrow::Cow;

use yumen_base::{FilePlace, LineSpan, Problem};

use super::yaml_mistake::{YamlMistake, first_mistake, repeated};
use crate::json_text::JsonText;

/// The reason why a text cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFault {
    /// The message, with line and column.
    pub message: String,
    /// The place in the text, if known.
    pub at: Option<LineSpan>,
    /// Remedy, if one is known.
    pub hint: Option<Cow<'static, str>>,
}

/// Beginnings of messages of the YAML parser, with remedies.
const YAML_HINTS: [(&str, &str); 8] = [
    (
        "mapping values are not allowed",
        "quote a value that contains \": \", and indent the members of an object alike",
    ),
    ("did not find expected key", "indent the members of an object alike"),
    ("could not find expected ':'", "write a member as \"name: value\""),
    ("did not find expected ',' or", "close the bracket, or separate the values by a comma"),
    (
        "did not find expected '-' indicator",
        "begin every item with \"- \" in one column, and its members in one column too",
    ),
    ("expected an object of lists of resources", "begin with the name of a list, such as routes:"),
    ("did not find expected node content", "write a value, or close the bracket"),
    ("found unexpected end of stream", "close the quote or bracket"),
];

/// Beginnings of messages of the JSON parser, with remedies.
const JSON_HINTS: [(&str, &str); 6] = [
    ("trailing comma", "remove the comma before the closing bracket"),
    ("EOF while parsing", "close the open brackets and quotes: the text ends too early"),
    ("key must be a string", "write the name in double quotes, and no comma behind the last member"),
    ("expected `,` or", "separate the values by a comma"),
    ("trailing characters", "leave one JSON object in the file"),
    ("expected value", "write a JSON value: texts are in double quotes"),
];

impl TextFault {
    /// A fault of a YAML text.
    pub fn of_yaml(text: &str, error: &serde_yaml_ng::Error) -> TextFault {
        TextFault::of_marked_yaml(text, text, error)
    }

    /// A fault of a YAML text, which the parser read with marks in place of variables.
    pub(super) fn of_marked_yaml(written: &str, marked: &str, error: &serde_yaml_ng::Error) -> TextFault {
        let at = error.location().map(|at| within(marked, span(at.line(), at.column(), 1)));
        let message = error.to_string();
        if let Some(at) = json_comment_at_begin(written) {
            return TextFault::of_comment(written, at);
        }
        if message.contains("more than one document") {
            return TextFault::of_second_document(written, message);
        }
        let tabbed = at.filter(|at| is_indented_by_tab(written, at.line));
        if let Some(LineSpan { line, .. }) = tabbed {
            return TextFault::at(
                "a tab indents the line",
                span(line as usize, tab_column(written, line) as usize, 1),
                "indent by spaces: YAML allows no tabs there",
            );
        }
        if let Some(fault) = at.and_then(|at| template_in(written, at.line)) {
            return fault;
        }
        if let (Some(at), true) = (at, message.starts_with("unknown anchor")) {
            return TextFault::of_alias(written, at);
        }
        if let Some(YamlMistake { message, hint, at }) = at.and_then(|at| first_mistake(written, at.line)) {
            return TextFault::at(message, at, hint);
        }
        TextFault::of_parser(message, at)
    }

    /// The fault in the words of the parser.
    fn of_parser(message: String, at: Option<LineSpan>) -> TextFault {
        // The parser fails where it no longer waits for the end; the mistake is mostly at the beginning.
        let begins = [
            ("while scanning a quoted scalar at ", "the quote is not closed", "close the quote"),
            (
                "while parsing a flow mapping at ",
                "the bracket is not closed",
                "close the bracket with }, and quote a value that contains brackets",
            ),
            (
                "while parsing a flow sequence at ",
                "the bracket is not closed",
                "close the bracket with ], and quote a value that contains brackets",
            ),
        ];
        let found = begins.into_iter().find_map(|(context, short, hint)| {
            let (_, place) = message.split_once(context)?;
            Some((short, hint, position(place)?, place.to_owned()))
        });
        match found {
            Some((short, hint, at, place)) => {
                TextFault { message: format!("{short}, at {place}"), at: Some(at), hint: Some(hint.into()) }
            }
            None => TextFault { hint: hint_of(&YAML_HINTS, &message), at, message },
        }
    }

    fn at(message: impl Into<String>, at: LineSpan, hint: impl Into<Cow<'static, str>>) -> TextFault {
        let message = format!("{} at line {} column {}", message.into(), at.line, at.column);
        TextFault { message, at: Some(at), hint: Some(hint.into()) }
    }

    fn of_comment(text: &str, offset: usize) -> TextFault {
        let place = place_of(text, offset);
        let line = text[offset..].lines().next().unwrap_or_default().trim_end();
        // A comment over several lines has a mark on its first one.
        let comment = line.find("*/").filter(|_| line.starts_with("/*")).map_or(line, |end| &line[..end + 2]);
        let hint = "remove the comment, or write the document in YAML, where # begins a comment";
        TextFault::at(
            "JSON has no comments",
            LineSpan { width: span(1, 1, comment.chars().count()).width, ..place },
            hint,
        )
    }

    /// A text with several documents.
    fn of_second_document(text: &str, message: String) -> TextFault {
        let is_mark = |line: &str| line == "---" || line.starts_with("--- ");
        let mut has_content = false;
        for (number, line) in text.lines().enumerate() {
            if has_content && is_mark(line.trim_end()) {
                let hint = "write one document: remove the line ---, and write one list of each kind";
                return TextFault::at("a second document begins", span(number + 1, 1, 3), hint);
            }
            has_content |=
                !is_mark(line.trim_end()) && !line.trim().is_empty() && !line.starts_with(['#', '%']);
        }
        let hint = "write one document: one file has one list of each kind";
        TextFault { message, at: None, hint: Some(hint.into()) }
    }

    /// An alias without an anchor.
    fn of_alias(text: &str, at: LineSpan) -> TextFault {
        let line: Vec<char> = line_of(text, at.line).chars().collect();
        let start = (at.column as usize).saturating_sub(1).min(line.len());
        let is_name = |c: &&char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let name: String = line[start..].iter().skip(1).take_while(is_name).collect();
        let member: String = line[..start].iter().collect();
        let member = member.trim_end().trim_end_matches(':');
        let width = name.chars().count() + 1;
        let at = span(at.line as usize, at.column as usize, width);
        match repeated(member, &name) {
            Some(name) => TextFault::at(
                format!("no anchor &{name} is defined before"),
                at,
                format!("define it as &{name}, or quote the text: \"*{name}\""),
            ),
            None => TextFault::at("no such anchor is defined before", at, "quote the value"),
        }
    }

    /// A fault of a JSON text.
    pub fn of_json(json: &JsonText<'_>, error: &serde_json::Error) -> TextFault {
        let message = json.error(error).to_string();
        let written = String::from_utf8_lossy(json.written());
        let text = &*written;
        // A message of the visitor has no position, and line 0.
        let offset = (error.line() > 0).then(|| {
            let (line, column) = json.place(error);
            let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
            // The column counts bytes, and is 0 at the start of a line.
            (start + column.saturating_sub(1)).min(text.len())
        });
        let is_comment =
            |offset: &usize| [b"//", b"/*"].iter().any(|mark| text.as_bytes()[*offset..].starts_with(*mark));
        if let Some(offset) = offset.filter(is_comment) {
            return TextFault::of_comment(text, offset);
        }
        let at = offset.map(|mut offset| {
            if message.starts_with("trailing comma") {
                offset = text.as_bytes()[..offset].iter().rposition(|byte| *byte == b',').unwrap_or(offset);
            }
            within(text, place_of(text, offset))
        });
        TextFault { hint: hint_of(&JSON_HINTS, &message), at, message }
    }

    /// The fault as a problem of the file. The place has no name of a file yet.
    pub fn into_problem(self) -> Problem {
        let TextFault { message, at, hint } = self;
        let place = at.map(|span| FilePlace { file: "".into(), span });
        Problem { place, hint: hint.map(Cow::into_owned), ..Problem::error("file", "", message) }
    }
}

/// A span of a line; numbers count from 1.
pub(super) fn span(line: usize, column: usize, width: usize) -> LineSpan {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    LineSpan { line: number(line), column: number(column), width: number(width) }
}

/// The place of a comment before the first name of a JSON object.
fn json_comment_at_begin(text: &str) -> Option<usize> {
    let is_comment = |text: &str| text.starts_with("//") || text.starts_with("/*");
    let outer = text.trim_start();
    let inner = outer.strip_prefix('{').map_or(outer, str::trim_start);
    let comment = [outer, inner].into_iter().find(|text| is_comment(text))?;
    // Without a bracket behind it, the text is of another kind.
    text.contains('{').then(|| text.len() - comment.len())
}

/// The fault of a line with an expression of a template.
fn template_in(text: &str, line: u32) -> Option<TextFault> {
    let content = line_of(text, line);
    let marks = [("{{", "}}"), ("{%", "%}")];
    let (start, length) = marks.into_iter().find_map(|(open, close)| {
        // `${{NAME}}` is a variable of the document.
        let (start, _) = content.match_indices(open).find(|(at, _)| !content[..*at].ends_with('$'))?;
        Some((start, content[start..].find(close)? + close.len()))
    })?;
    let expression = &content[start..start + length];
    // `{{"a": 1}}` is a mapping of a mapping.
    if expression.contains('"') && expression.contains(": ") {
        return None;
    }
    let at = span(line as usize, content[..start].chars().count() + 1, expression.chars().count());
    let hint = "render the templates first, as with `helm template`; Yumen replaces ${{NAME}} alone, by an environment variable";
    Some(TextFault::at("the line has an expression of a template", at, hint))
}

/// The place of a byte.
fn place_of(text: &str, offset: usize) -> LineSpan {
    let offset = (0..=offset.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let before = &text[..offset];
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    span(before.matches('\n').count() + 1, before[start..].chars().count() + 1, 1)
}

/// The place, or the end of the last line with content for a place behind the text.
fn within(text: &str, at: LineSpan) -> LineSpan {
    let is_behind = text.lines().skip(at.line.saturating_sub(1) as usize).all(|line| line.trim().is_empty());
    match text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).last() {
        Some((last, line)) if is_behind => span(last + 1, line.trim_end().chars().count() + 1, 1),
        _ => at,
    }
}

/// Parses `line 3 column 10`.
fn position(text: &str) -> Option<LineSpan> {
    let (line, column) = text.strip_prefix("line ")?.split_once(" column ")?;
    let column = column.split(|c: char| !c.is_ascii_digit()).next()?;
    Some(span(line.parse().ok()?, column.parse().ok()?, 1))
}

fn hint_of(known: &[(&str, &'static str)], message: &str) -> Option<Cow<'static, str>> {
    known.iter().find(|(part, _)| message.contains(part)).map(|(_, hint)| Cow::Borrowed(*hint))
}

fn line_of(text: &str, line: u32) -> &str {
    text.lines().nth(line.saturating_sub(1) as usize).unwrap_or_default()
}

fn is_indented_by_tab(text: &str, line: u32) -> bool {
    let line = line_of(text, line);
    line[..line.len() - line.trim_start().len()].contains('\t')
}

fn tab_column(text: &str, line: u32) -> u32 {
    line_of(text, line).find('\t').map_or(1, |at| at as u32 + 1)
}
