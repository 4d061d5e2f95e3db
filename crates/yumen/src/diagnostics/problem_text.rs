//! Problems as a compiler prints errors: place, message, source line with a mark, remedy.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::ops::Range;

use unicode_width::UnicodeWidthChar;
use yumen_base::{LineSpan, Problem, ProblemLevel};

use super::SourceText;
use super::secret_mask::visible;

/// Longest shown part of a source line, in characters.
const LINE_CHARS_MAX: usize = 120;
/// Characters of a long line before the mark.
const BEFORE_MARK: usize = 60;

/// Renders problems, each followed by an empty line.
pub(crate) fn render(problems: &[Problem], source: Option<&SourceText>, colors: bool) -> String {
    let lines: Vec<&str> = source.map(|source| source.text.lines().collect()).unwrap_or_default();
    let name = source.map(|source| source.name.as_str());
    let texts = problems.iter().map(|problem| ProblemText { problem, name, lines: &lines, colors });
    texts.map(|text| format!("{text}\n")).collect()
}

/// One problem in the form of a compiler's error.
struct ProblemText<'p> {
    problem: &'p Problem,
    /// Name of the file, for problems without a place.
    name: Option<&'p str>,
    /// Lines of the file; empty if unknown.
    lines: &'p [&'p str],
    colors: bool,
}

impl fmt::Display for ProblemText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { level, object, path, hint, place, .. } = self.problem;
        match (place, self.name) {
            (Some(place), _) => write!(f, "{}: ", self.bold(&place.to_string()))?,
            (None, Some(name)) => write!(f, "{}: ", self.bold(name))?,
            (None, None) => {}
        }
        let (word, color) = match level {
            ProblemLevel::Error => ("error", "31"),
            ProblemLevel::Warning => ("warning", "33"),
        };
        write!(f, "{}: ", self.painted(word, &format!("1;{color}")))?;
        // The place names the file, so an object that stands for the file adds nothing.
        let is_named =
            (self.name.is_some() || place.is_some()) && matches!(object.as_str(), "file" | "yumen.yaml");
        match (object.as_str(), path.as_str()) {
            (_, "") if is_named => {}
            (_, path) if is_named => write!(f, "{}: ", printable(path))?,
            (object, "") => write!(f, "{}: ", printable(object))?,
            (object, path) => write!(f, "{} at {}: ", printable(object), printable(path))?,
        }
        writeln!(f, "{}", printable(&self.message()))?;
        if let Some(place) = place {
            self.write_line(f, place.span, color)?;
        }
        let (help, effect) = hint.as_deref().map_or((None, None), split_effect);
        for (word, text) in [("help", self.notation()), ("help", help), ("note", effect)] {
            if let Some(text) = text {
                writeln!(f, "{}: {}", self.painted(word, "1;36"), printable(text))?;
            }
        }
        Ok(())
    }
}

impl ProblemText<'_> {
    /// The allowed values, or the notation of an item.
    fn notation(&self) -> Option<&str> {
        if self.has_cause_in_allowed() {
            return None;
        }
        let is_no_object = self.problem.message == "an item must be an object";
        self.problem.allowed.as_deref().or(is_no_object.then_some("write its members as name: value"))
    }

    /// Whether the message is that of a condition of a schema, beside which the fault itself stands.
    fn has_cause_in_allowed(&self) -> bool {
        self.problem.message.ends_with(" clause did not match") && self.problem.allowed.is_some()
    }

    /// The message without the parts that place and path repeat.
    fn message(&self) -> String {
        let Problem { message, place, path, .. } = self.problem;
        let mut message = message.as_str();
        if self.has_cause_in_allowed() {
            message = self.problem.allowed.as_deref().unwrap_or(message);
        }
        // A fault of syntax has its place in the message too.
        if place.is_some() && path.is_empty() {
            message = message.split(" at line ").next().unwrap_or(message).trim_end_matches(',');
        }
        if !path.is_empty() {
            message = without_outer(message);
        }
        if let Some((_, inner)) =
            message.split_once(" failed: ").filter(|(outer, _)| outer.starts_with("allOf "))
        {
            message = inner;
        }
        if message == "expect array to have at least 1 items" {
            return "the list must not be empty".to_owned();
        }
        if let Some(name) = message.strip_prefix("additional properties forbidden, found ") {
            return format!("unknown member \"{name}\"");
        }
        if let Some(name) =
            message.strip_prefix("property ").and_then(|rest| rest.strip_suffix(" is required"))
        {
            return format!("the member {name} is missing");
        }
        let alternatives = ["object matches none of the required", "value should match only one schema"];
        let is_choice = alternatives.iter().any(|start| message.starts_with(start));
        if is_choice
            && self.problem.allowed.as_deref().is_some_and(|allowed| {
                ["add ", "did you mean "].iter().any(|start| allowed.starts_with(start))
            })
        {
            return "a required member is missing".to_owned();
        }
        let notation = self.problem.allowed.as_deref().unwrap_or_default();
        if is_choice && notation.starts_with("write an address or a network") {
            return "the value is neither an address nor a network".to_owned();
        }
        if is_choice && notation.starts_with("write an address with its weight") {
            return "expected nodes as an object or a list of objects".to_owned();
        }
        if let Some((_, found)) = message.strip_prefix("failed to match pattern ").and_then(|rest| {
            rest.rsplit_once("\" with ").filter(|_| notation.starts_with("write a host name"))
        }) {
            return format!("{found} is no host");
        }
        if let Some((found, expected)) =
            message.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "))
        {
            let found = found.replace("sequence", "a list").replace("map", "an object");
            return format!("expected {expected}, found {found}");
        }
        if message == "matches none of the enum values" {
            let found = place.as_ref().and_then(|place| self.marked(place.span));
            return format!("{} is not an allowed value", found.as_deref().unwrap_or("the value"));
        }
        in_terms_of_users(message)
    }

    /// The characters at a span, with secrets masked, if they are within one line.
    fn marked(&self, span: LineSpan) -> Option<String> {
        let from = span.column.checked_sub(1)? as usize;
        let to = from + span.width as usize;
        let line = visible(self.lines, span.line, self.problem, |length| from.min(length)..to.min(length))?;
        line.get(from..to).map(|found| found.iter().collect())
    }

    /// Writes the source line and the mark below it.
    fn write_line(&self, f: &mut fmt::Formatter<'_>, span: LineSpan, color: &str) -> fmt::Result {
        let window = |length: usize| {
            let column = (span.column as usize).saturating_sub(1).min(length);
            let from = if length > LINE_CHARS_MAX { column.saturating_sub(BEFORE_MARK) } else { 0 };
            from..(from + LINE_CHARS_MAX).min(length)
        };
        let Some(characters) = visible(self.lines, span.line, self.problem, window) else { return Ok(()) };
        let Range { start: from, end: to } = window(characters.len());
        let column = (span.column as usize).saturating_sub(1).min(characters.len());
        let (start, end) = (if from > 0 { "…" } else { "" }, if to < characters.len() { "…" } else { "" });
        let shown: String = characters[from..to].iter().copied().map(one_column).collect();
        let number = span.line.to_string();
        let bar = self.painted("|", "1;34");
        writeln!(f, " {} {bar} {start}{}{end}", self.painted(&number, "1;34"), shown.trim_end())?;
        // A mark beyond the end of the line, such as at the end of the file, is one character wide.
        let width = (span.width as usize).clamp(1, (to - column.min(to)).max(1));
        // Columns of the terminal: a character of East Asia and an emoji take two.
        let columns = |characters: &[char]| -> usize {
            characters.iter().map(|c| one_column(*c).width().unwrap_or(0)).sum()
        };
        let before = " ".repeat(columns(&characters[from..column]) + start.chars().count());
        let marked = &characters[column..(column + width).min(to).max(column)];
        let mark = "^".repeat(columns(marked).max(1));
        writeln!(
            f,
            " {} {bar} {before}{}",
            " ".repeat(number.len()),
            self.painted(&mark, &format!("1;{color}"))
        )
    }

    fn bold<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.painted(text, "1")
    }

    fn painted<'t>(&self, text: &'t str, code: &str) -> Cow<'t, str> {
        if self.colors { format!("\x1b[{code}m{text}\x1b[0m").into() } else { text.into() }
    }
}

/// The remedy of a hint, and the effect of the problem on traffic.
pub(crate) fn split_effect(hint: &str) -> (Option<&str>, Option<&str>) {
    if !["until it is fixed", "disabled by its status"].iter().any(|end| hint.ends_with(end)) {
        return (Some(hint), None);
    }
    match hint.rfind("; ").or_else(|| hint.rfind("? ")) {
        Some(at) => (Some(hint[..=at].trim_end_matches(';')), Some(hint[at + 2..].trim_start())),
        None => (None, Some(hint)),
    }
}

/// The message of the innermost fault: the path of the problem names the way there.
fn without_outer(message: &str) -> &str {
    let mut inner = message;
    // Each round removes one level of nesting.
    while let Some((outer, rest)) = inner.split_once(": ") {
        let is_member = outer == "invalid configuration"
            || outer.starts_with("property \"") && outer.ends_with(" validation failed");
        let is_pattern = outer.starts_with("failed to validate ") && outer.ends_with(')');
        let is_item = outer
            .strip_prefix("failed to validate item ")
            .is_some_and(|number| number.parse::<u64>().is_ok());
        if !is_member && !is_item && !is_pattern {
            break;
        }
        inner = rest;
    }
    inner
}

/// A character of the source that moves the cursor by its width alone; controls could move the cursor of a terminal.
fn one_column(character: char) -> char {
    match character {
        '\t' => ' ',
        other if other.is_control() => '\u{fffd}',
        other => other,
    }
}

/// The text without control characters.
fn printable(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() && c != '\n';
    match text.contains(is_control) {
        false => text.into(),
        true => {
            let mut safe = String::with_capacity(text.len());
            for character in text.chars() {
                let _ = safe.write_char(if is_control(character) { '\u{fffd}' } else { character });
            }
            safe.into()
        }
    }
}

/// A message of the contract in the terms of YAML and JSON.
fn in_terms_of_users(message: &str) -> String {
    // The contract has no singular.
    let message = match message.strip_suffix(" 1 items").or(message.strip_suffix(" 1 properties")) {
        Some(start) if message.ends_with("items") => format!("{start} 1 item"),
        Some(start) => format!("{start} 1 property"),
        None => message.to_owned(),
    };
    // Types have the names of Lua in messages of the contract.
    message
        .replace("got table", "found a list or an object")
        .replace("got userdata", "found null")
        .replace(", got ", ", found ")
}

#[cfg(test)]
mod tests;
