//! The first mistake of a YAML text that does not parse.
//!
//! The parser notices many mistakes lines later, such as at the next quote after an unclosed one. This scan runs only
//! on a text that the parser refused. It reads lines and quotes, and is best effort: a text without a known mistake
//! keeps the message of the parser.

use yumen_base::LineSpan;

use super::syntax::span;

/// Longest value that a remedy repeats, in characters.
const REPEATED_CHARS_MAX: usize = 60;

/// Ends of names of members whose values no remedy repeats.
const PRIVATE_NAMES: [&str; 7] =
    ["key", "password", "passwd", "secret", "token", "authorization", "credential"];

/// A mistake, its place and its remedy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct YamlMistake {
    pub(super) message: String,
    pub(super) hint: String,
    pub(super) at: LineSpan,
}

/// The first mistake from the begin to the line `last`, which the parser refused.
pub(super) fn first_mistake(text: &str, last: u32) -> Option<YamlMistake> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
    let mut scan = MistakeScan { lines: &lines, line: 0, depth: 0, member: None };
    while scan.line < lines.len().min(last as usize) {
        if let Some(mistake) = scan.scan_line() {
            return Some(mistake);
        }
        scan.line += 1;
    }
    None
}

/// The position of the scan in a text.
struct MistakeScan<'l> {
    lines: &'l [Vec<char>],
    /// The current line, from 0.
    line: usize,
    /// Open brackets.
    depth: usize,
    /// The column of the member on the previous line with content, from 0.
    member: Option<usize>,
}

/// The end of a quoted text.
struct QuoteEnd {
    line: usize,
    /// The column behind the quote, from 0.
    column: usize,
}

impl MistakeScan<'_> {
    /// Reads one line, or all lines of a text in quotes or in a block.
    fn scan_line(&mut self) -> Option<YamlMistake> {
        let line = &self.lines[self.line];
        let mut from = indent(line);
        if matches!(line.get(from), None | Some('#')) || (from == 0 && line[0] == '%') {
            return None;
        }
        let mut has_dash = false;
        if self.depth == 0 {
            if let Some(mistake) = self.odd_space(from) {
                return Some(mistake);
            }
            while line[from] == '-' && line.get(from + 1) == Some(&' ') {
                has_dash = true;
                from += 1 + indent(&line[from + 1..]);
                if from == line.len() {
                    self.member = None;
                    return None;
                }
            }
            if let Some(mistake) = self.dash_without_space(from) {
                return Some(mistake);
            }
            let before = self.member.replace(from);
            if !has_colon(&line[from..]) {
                self.member = None;
                if let Some(mistake) = self.member_without_colon(from, has_dash, before) {
                    return Some(mistake);
                }
            }
        }
        self.scan_values(from)
    }

    /// Reads the values of a line from a column on.
    fn scan_values(&mut self, start: usize) -> Option<YamlMistake> {
        let (mut column, mut is_start, mut name) = (start, true, (start, start));
        while let Some(&character) = self.lines[self.line].get(column) {
            let line = &self.lines[self.line];
            let next = line.get(column + 1).copied();
            match character {
                ' ' | '\t' => {}
                '#' if column == 0 || line[column - 1].is_whitespace() => return None,
                '"' | '\'' if is_start => {
                    let end = match self.quoted(column) {
                        Ok(end) => end,
                        Err(mistake) => return Some(mistake),
                    };
                    (self.line, column, is_start) = (end.line, end.column, false);
                    continue;
                }
                '[' | '{' if is_start || self.depth > 0 => (self.depth, is_start) = (self.depth + 1, true),
                ']' | '}' if self.depth > 0 => (self.depth, is_start) = (self.depth - 1, false),
                ',' if self.depth > 0 => (is_start, name) = (true, (column + 1, column + 1)),
                ':' if next.is_none_or(char::is_whitespace)
                    || (self.depth > 0 && !is_start && next == Some('"')) =>
                {
                    (is_start, name) = (true, (name.0, column));
                }
                '&' | '!' if is_start => {
                    column += line[column..].iter().take_while(|c| !c.is_whitespace()).count();
                    continue;
                }
                '|' | '>' if is_start && self.depth == 0 => {
                    // A name before the block has the column of the member; its text has more.
                    return self.block(start, name.0);
                }
                '*' | '@' | '`' | '%' if is_start => {
                    if let Some(mistake) = self.unquoted(column, &line[name.0..name.1]) {
                        return Some(mistake);
                    }
                    is_start = false;
                }
                '-' if is_start && self.depth == 0 => {
                    if let Some(mistake) = self.pem_without_block(column, name.0) {
                        return Some(mistake);
                    }
                    is_start = false;
                }
                _ => is_start = false,
            }
            column += 1;
        }
        None
    }

    /// White space in the indentation that is no space of YAML.
    fn odd_space(&self, from: usize) -> Option<YamlMistake> {
        let name = odd_space_name(self.lines[self.line][from])?;
        let message = format!("the line is indented by {name}");
        self.mistake(message, "replace it by a space: YAML allows no other character there", from, 1)
    }

    /// `-id: a`.
    fn dash_without_space(&self, from: usize) -> Option<YamlMistake> {
        let line = &self.lines[self.line];
        let is_item = line[from] == '-' && line.get(from + 1).is_some_and(|c| c.is_alphabetic());
        if !is_item || !has_colon(&line[from..]) {
            return None;
        }
        let name = leading_name(&line[from + 1..]);
        let hint = format!("write \"- {name}: ...\"");
        self.mistake("the space after - is missing", hint, from, 1 + name.chars().count())
    }

    /// `uri /a` or `uri:/a` among members.
    fn member_without_colon(
        &self,
        from: usize,
        has_dash: bool,
        before: Option<usize>,
    ) -> Option<YamlMistake> {
        let line = &self.lines[self.line];
        let name = leading_name(&line[from..]);
        let behind = from + name.chars().count();
        let rest = line.get(behind + 1..)?;
        let is_separator = |c: char| matches!(c, ':' | ' ') || odd_space_name(c).is_some();
        if name.is_empty() || !is_separator(line[behind]) {
            return None;
        }
        // A text over several lines is no member: its lines have more columns than the member.
        let next = self.lines[self.line + 1..].iter().find(|line| indent(line) < line.len());
        let is_first = has_dash && next.is_some_and(|next| indent(next) == from && next[from] != '-');
        if !is_first && (has_dash || before != Some(from)) {
            return None;
        }
        let value: String = rest.iter().collect();
        let hint = match repeated(&name, value.trim()) {
            Some(value) => format!("write \"{name}: {value}\""),
            None => format!("write \"{name}: ...\""),
        };
        let odd = line[behind..].iter().take(2).find_map(|c| odd_space_name(*c));
        let message = match (line[behind], odd) {
            (_, Some(space)) => format!("\"{name}\" is followed by {space}"),
            (':', None) => format!("the space after \"{name}:\" is missing"),
            _ => format!("the colon after \"{name}\" is missing"),
        };
        self.mistake(message, hint, from, trimmed_length(&line[from..]))
    }

    /// The end of a text in quotes.
    fn quoted(&self, start: usize) -> Result<QuoteEnd, YamlMistake> {
        let quote = self.lines[self.line][start];
        let open = || {
            let hint = format!("close the quote with {quote}");
            self.mistake_of("the quote is not closed".to_owned(), hint, start, 1)
        };
        let end = self.closing(start, quote).ok_or_else(open)?;
        let line = &self.lines[end.line];
        let rest = &line[end.column..];
        let next = rest.iter().position(|c| !c.is_whitespace());
        let is_separate = match next.map(|at| (at, rest[at])) {
            None | Some((_, ':' | ',' | ']' | '}')) => true,
            Some((at, '#')) => at > 0,
            Some(_) => false,
        };
        if is_separate {
            return Ok(end);
        }
        if end.line > self.line {
            return Err(open());
        }
        let hint = match quote {
            '\'' => "write '' for a quote inside single quotes, and nothing behind the closing quote",
            _ => "write \\\" for a quote inside double quotes, and nothing behind the closing quote",
        };
        let message = "text follows the closing quote".to_owned();
        Err(self.mistake_of(message, hint.to_owned(), end.column + next.unwrap_or(0), 1))
    }

    fn closing(&self, start: usize, quote: char) -> Option<QuoteEnd> {
        let mut column = start + 1;
        for line in self.line..self.lines.len() {
            let characters = &self.lines[line];
            while let Some(&character) = characters.get(column) {
                let is_doubled = quote == '\'' && characters.get(column + 1) == Some(&'\'');
                match character {
                    '\\' if quote == '"' => column += 1,
                    '\'' if is_doubled => column += 1,
                    other if other == quote => return Some(QuoteEnd { line, column: column + 1 }),
                    _ => {}
                }
                column += 1;
            }
            column = 0;
        }
        None
    }

    /// Passes over the text of a block, which begins behind the current line.
    fn block(&mut self, start: usize, name: usize) -> Option<YamlMistake> {
        let header = self.line;
        let line = &self.lines[header];
        let is_member = has_colon(&line[start..]);
        let outer = if is_member { name } else { start.saturating_sub(2) };
        let is_blank = |line: &[char]| indent(line) == line.len();
        let text = self.lines[header + 1..].iter().take_while(|line| is_blank(line) || indent(line) > outer);
        self.line += text.count();
        self.member = is_member.then_some(start);
        let after = self.lines.get(self.line + 1)?;
        let content: String = after[indent(after)..].iter().collect();
        let is_structure =
            has_colon(after) || ["- ", "#", "---", "..."].iter().any(|start| content.starts_with(start));
        if content == "-" || (is_structure && !content.starts_with("-----")) {
            return None;
        }
        let written: String = line[start..].iter().collect();
        let written = written.trim_end();
        let message = format!("the text of \"{written}\" is not indented");
        let hint = "indent every line of the text by more spaces than the member";
        let at = span(header + 1, start + 1, written.chars().count());
        Some(YamlMistake { message, hint: hint.to_owned(), at })
    }

    /// PEM text behind the name of a member, with its other lines no deeper than the member.
    fn pem_without_block(&self, column: usize, name: usize) -> Option<YamlMistake> {
        let line = &self.lines[self.line];
        let is_pem = line[column..].starts_with(&['-'; 5]);
        let next = self.lines.get(self.line + 1)?;
        if !is_pem || column == name || indent(next) > name || has_colon(next) {
            return None;
        }
        let member = leading_name(&line[name..]);
        let hint = format!("write \"{member}: |\", and the whole text in the lines below, indented");
        let width = member.chars().count();
        self.mistake(format!("the text of \"{member}\" is not indented"), hint, name, width)
    }

    /// A plain value with a first character that YAML reserves.
    fn unquoted(&self, column: usize, name: &[char]) -> Option<YamlMistake> {
        let line = &self.lines[self.line];
        let rest = &line[column..];
        let ends = |c: &char| self.depth > 0 && matches!(c, ',' | ']' | '}');
        let length = trimmed_length(&rest[..rest.iter().position(ends).unwrap_or(rest.len())]);
        let value: String = rest[..length].iter().collect();
        let alias = value.strip_prefix('*').unwrap_or_default();
        let is_alias = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ' | ':');
        if !alias.is_empty() && alias.chars().all(is_alias) {
            return None;
        }
        let name: String = name.iter().collect();
        let hint = match repeated(&name, &value) {
            Some(value) => format!("quote it: \"{value}\""),
            None => "quote the value".to_owned(),
        };
        let message = format!("a value without quotes begins with {}", rest[0]);
        self.mistake(message, hint, column, length)
    }

    fn mistake(
        &self,
        message: impl Into<String>,
        hint: impl Into<String>,
        column: usize,
        width: usize,
    ) -> Option<YamlMistake> {
        Some(self.mistake_of(message.into(), hint.into(), column, width))
    }

    fn mistake_of(&self, message: String, hint: String, column: usize, width: usize) -> YamlMistake {
        YamlMistake { message, hint, at: span(self.line + 1, column + 1, width) }
    }
}

/// The value, if a remedy may repeat it.
pub(super) fn repeated<'v>(name: &str, value: &'v str) -> Option<&'v str> {
    let name = name.trim().trim_matches(['"', '\'']).to_ascii_lowercase();
    let is_private = PRIVATE_NAMES.iter().any(|end| name.ends_with(end));
    let is_short = value.chars().count() <= REPEATED_CHARS_MAX && !value.contains(['"', '\\']);
    (!is_private && is_short && !value.is_empty()).then_some(value)
}

/// The count of spaces at the begin.
fn indent(line: &[char]) -> usize {
    line.iter().take_while(|c| **c == ' ').count()
}

fn trimmed_length(characters: &[char]) -> usize {
    characters.iter().rposition(|c| !c.is_whitespace()).map_or(0, |at| at + 1)
}

/// Whether the line has a colon that ends the name of a member.
fn has_colon(line: &[char]) -> bool {
    let is_end =
        |(at, c): (usize, &char)| *c == ':' && line.get(at + 1).is_none_or(|c| matches!(c, ' ' | '\t'));
    line.iter().enumerate().any(is_end)
}

/// The name at the begin.
fn leading_name(characters: &[char]) -> String {
    let is_name = |c: &&char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = characters.iter().take_while(is_name).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { String::new() }
}

/// The name of white space that YAML does not take for it.
fn odd_space_name(character: char) -> Option<String> {
    let name = match character {
        '\u{a0}' => "a no-break space",
        '\u{200b}' => "a zero width space",
        '\u{3000}' => "an ideographic space",
        '\u{feff}' => "a byte order mark",
        other if !other.is_ascii() && other.is_whitespace() => "white space",
        _ => return None,
    };
    Some(format!("{name} (U+{:04X})", u32::from(character)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message, line and column of the first mistake.
    fn check(text: &str, expected: Option<(&str, u32, u32)>) {
        let found = first_mistake(text, u32::MAX);
        let found = found.as_ref().map(|one| (&*one.message, one.at.line, one.at.column));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_correct_text_has_no_mistake() {
        for text in [
            "a:\n  text over\n  two lines: no\n",
            "- id: a\n  desc: some words\n    and more\n  uri: /a\n",
            "- a b\n- c d\n",
            "a: \"x\n  b: c\"\nd: 'it''s' # c\n",
            "a: \"x\\\"y\"\n\"b\": {\"c\":1,'d': [*e, \"f\"]}\n",
            "a: &b { c: 1 }\nd: *b\ne:\n  <<: *b\n",
            "a: |\n  b: \"\n  @\n\n  c d\nd: >-\n  *\n- e\n",
            "- |\n  it's\n- a\n",
            "a: ${{B:=c}}\nd: -5\n--- \n%e: f\n",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn a_mistake_is_at_its_begin() {
        let colon = "the colon after \"uri\" is missing";
        check("- id: a\n  uri /a\n  desc: b\n", Some((colon, 2, 3)));
        check("- a: 'b\n  c: 'd'\n", Some(("the quote is not closed", 1, 6)));
        check("- a: \"b\n", Some(("the quote is not closed", 1, 6)));
        check("a: [b, *.c]\n", Some(("a value without quotes begins with *", 1, 8)));
        check("- a: |\n  b\n", Some(("the text of \"a: |\" is not indented", 1, 3)));
        check("a:\n\u{3000}b: c\n", Some(("the line is indented by an ideographic space (U+3000)", 2, 1)));
    }

    #[test]
    fn no_remedy_repeats_a_secret() {
        for text in ["- id: a\n  api_key s3cr3t\n", "password: @s3cr3t\n", "{ secret: %s3cr3t }\n"] {
            let found = first_mistake(text, u32::MAX).expect("a mistake");
            assert!(!found.hint.contains("s3cr3t") && !found.message.contains("s3cr3t"), "{found:?}");
        }
    }
}
