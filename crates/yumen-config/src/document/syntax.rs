//! Faults of syntax: their place, and a remedy for the frequent ones.

use yumen_base::{FilePlace, LineSpan, Problem};

use crate::json_text::JsonText;

/// The reason why a text cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFault {
    /// The message, with line and column.
    pub message: String,
    /// The place in the text, if known.
    pub at: Option<LineSpan>,
    /// Remedy, if one is known.
    pub hint: Option<&'static str>,
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
        let at = error.location().map(|at| within(text, point(at.line(), at.column())));
        let message = error.to_string();
        if let Some(at) = at.filter(|at| is_indented_by_tab(text, at.line)) {
            let message = format!("a tab indents the line at line {} column 1", at.line);
            let at = LineSpan { column: tab_column(text, at.line), ..at };
            return TextFault {
                message,
                at: Some(at),
                hint: Some("indent by spaces: YAML allows no tabs there"),
            };
        }
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
                TextFault { message: format!("{short}, at {place}"), at: Some(at), hint: Some(hint) }
            }
            None => TextFault { hint: hint_of(&YAML_HINTS, &message), at, message },
        }
    }

    /// A fault of a JSON text.
    pub fn of_json(json: &JsonText<'_>, error: &serde_json::Error) -> TextFault {
        let message = json.error(error).to_string();
        let written = String::from_utf8_lossy(json.written());
        let text = &*written;
        // A message of the visitor has no position, and line 0.
        let at = (error.line() > 0).then(|| {
            let (line, column) = json.place(error);
            let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
            // The column counts bytes, and is 0 at the start of a line.
            let mut offset = (start + column.saturating_sub(1)).min(text.len());
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
        Problem { place, hint: hint.map(str::to_owned), ..Problem::error("file", "", message) }
    }
}

fn point(line: usize, column: usize) -> LineSpan {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    LineSpan { line: number(line), column: number(column), width: 1 }
}

/// The place of a byte.
fn place_of(text: &str, offset: usize) -> LineSpan {
    let offset = (0..=offset.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let before = &text[..offset];
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    point(before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// The place, or the end of the last line with content for a place behind the text.
fn within(text: &str, at: LineSpan) -> LineSpan {
    let is_behind = text.lines().skip(at.line.saturating_sub(1) as usize).all(|line| line.trim().is_empty());
    match text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).last() {
        Some((last, line)) if is_behind => point(last + 1, line.trim_end().chars().count() + 1),
        _ => at,
    }
}

/// Parses `line 3 column 10`.
fn position(text: &str) -> Option<LineSpan> {
    let (line, column) = text.strip_prefix("line ")?.split_once(" column ")?;
    let column = column.split(|c: char| !c.is_ascii_digit()).next()?;
    Some(point(line.parse().ok()?, column.parse().ok()?))
}

fn hint_of(known: &[(&str, &'static str)], message: &str) -> Option<&'static str> {
    known.iter().find(|(part, _)| message.contains(part)).map(|(_, hint)| *hint)
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
