//! Marks in place of `${{NAME}}` while YAML is parsed, so that no value of a variable is read as YAML syntax.
//!
//! A plain scalar with a variable is marked as a whole, by an integer: the parser returns a number for it only where
//! nothing quotes it. A variable anywhere else is marked by characters for private use.

/// A variable, or a plain scalar with variables, as written.
type MarkedText<'t> = &'t str;

/// The marks of one document.
pub(super) struct VariableMarks<'t> {
    marked: Vec<MarkedText<'t>>,
    /// The integer of the first mark; it and its successors occur nowhere else in the text.
    base: u64,
    /// Encloses the number of a mark inside other text; occurs nowhere else in the text.
    fence: char,
}

/// Digits behind the leading ones of an integer mark: room for the numbers of marks.
const INDEX_DIGITS: u32 = 14;
/// Zeros between them that make the leading digits a search text.
const ZERO_DIGITS: usize = 7;

impl<'t> VariableMarks<'t> {
    /// Marks the variables of a YAML text; `None` if it has none, or every possible mark occurs in it.
    pub(super) fn mark(text: &'t str) -> Option<(VariableMarks<'t>, String)> {
        next_variable(text)?;
        let is_free = |lead: &u64| !text.contains(&format!("{lead}{:0>ZERO_DIGITS$}", ""));
        // An integer with 19 digits below 2^63, which every reader of YAML takes for an integer.
        let lead = (70_000..92_000).find(is_free)?;
        let fence = ('\u{e000}'..='\u{f8ff}').find(|fence| !text.contains(*fence))?;
        let mut marks = VariableMarks { marked: Vec::new(), base: lead * 10_u64.pow(INDEX_DIGITS), fence };
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            marks.mark_line(line, &mut out);
        }
        Some((marks, out))
    }

    fn mark_line(&mut self, line: &'t str, out: &mut String) {
        let mut done = 0;
        while let Some((start, length)) = next_variable(&line[done..]) {
            let (start, end) = (done + start, done + start + length);
            let (mark, from, to) = match plain_scalar(line, done, start, end) {
                Some((from, to)) => (self.plain_mark().to_string(), from, to),
                None => (self.fenced_mark(), start, end),
            };
            self.marked.push(&line[from..to]);
            out.push_str(&line[done..from]);
            out.push_str(&mark);
            done = to;
        }
        out.push_str(&line[done..]);
    }

    fn plain_mark(&self) -> u64 {
        self.base + self.marked.len() as u64
    }

    fn fenced_mark(&self) -> String {
        format!("{}{}{}", self.fence, self.marked.len(), self.fence)
    }

    /// The text behind an integer, if the integer is a mark.
    pub(super) fn plain(&self, number: u64) -> Option<MarkedText<'t>> {
        let index = number.checked_sub(self.base)?;
        self.marked.get(usize::try_from(index).ok()?).copied()
    }

    /// Whether a text has a mark.
    pub(super) fn has_mark(&self, text: &str) -> bool {
        self.next_mark(text).is_some()
    }

    /// Replaces the marks of a text by the results of `value`; `None` if it has none.
    pub(super) fn replace<E>(
        &self,
        text: &str,
        value: &mut dyn FnMut(MarkedText<'t>) -> Result<String, E>,
    ) -> Result<Option<String>, E> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((start, end, marked)) = self.next_mark(rest) {
            out.push_str(&rest[..start]);
            out.push_str(&value(marked)?);
            rest = &rest[end..];
        }
        Ok((rest.len() < text.len()).then(|| out + rest))
    }

    /// The range of the first mark in a text, and the text behind it. A mark of a plain scalar may be inside a
    /// quoted text that looks like YAML.
    fn next_mark(&self, text: &str) -> Option<(usize, usize, MarkedText<'t>)> {
        let fenced = text.split_once(self.fence).and_then(|(before, rest)| {
            let (number, _) = rest.split_once(self.fence)?;
            let start = before.len();
            let end = start + number.len() + 2 * self.fence.len_utf8();
            Some((start, end, *self.marked.get(number.parse::<usize>().ok()?)?))
        });
        let lead = (self.base / 10_u64.pow(INDEX_DIGITS)).to_string();
        let plain = text.find(&format!("{lead}{:0>ZERO_DIGITS$}", "")).and_then(|start| {
            let end = start + lead.len() + INDEX_DIGITS as usize;
            Some((start, end, self.plain(text.get(start..end)?.parse().ok()?)?))
        });
        fenced.into_iter().chain(plain).min_by_key(|(start, _, _)| *start)
    }
}

/// Position and length of the first `${{NAME...}}` in a text. Its end is on the same line, and it starts with a
/// letter, a digit or `_`, as in APISIX; anything else is text.
pub(super) fn next_variable(text: &str) -> Option<(usize, usize)> {
    text.match_indices("${{").find_map(|(start, _)| {
        let inner = &text[start + 3..];
        let mut end = inner.find("}}").filter(|end| !inner[..*end].contains('\n'))?;
        // A default may be a JSON object, whose end is part of `}}}`. In `{a: ${{NAME}}}` nothing is open.
        let is_open = |text: &str| text.matches('{').count() > text.matches('}').count();
        while is_open(&inner[..end]) && inner[end + 2..].starts_with('}') {
            end += 1;
        }
        let is_name =
            inner.trim_start().starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_');
        is_name.then_some((start, 3 + end + 2))
    })
}

/// The range of the plain scalar around the variable at `start..end`, if the scalar appears to be a value alone. Not
/// before `done`. Inside a quoted text the result does not matter.
fn plain_scalar(line: &str, done: usize, start: usize, mut end: usize) -> Option<(usize, usize)> {
    const INDICATORS: [char; 7] = ['[', ']', '{', '}', ',', '"', '\''];
    let is_end = |c: char| c.is_whitespace() || INDICATORS.contains(&c);
    let from = line[done..start]
        .rfind(is_end)
        .map_or(done, |at| done + at + line[done + at..].chars().next().map_or(1, char::len_utf8));
    // The end of another variable ends no scalar, but only a scalar that is not marked as a whole stops there.
    if from == done && done > 0 {
        return None;
    }
    loop {
        let rest = &line[end..];
        let length = rest.find(is_end).unwrap_or(rest.len());
        match next_variable(rest) {
            Some((at, variable)) if at <= length => end += at + variable,
            _ => {
                end += length;
                break;
            }
        }
    }
    let before = line[..from].trim_end_matches([' ', '\t']);
    let is_spaced = before.len() < from;
    let begins = match before.chars().next_back() {
        None | Some('[' | '{' | ',') => true,
        Some(':' | '-' | '?') => is_spaced,
        Some(_) => false,
    };
    let after = line[end..].trim_start_matches([' ', '\t']);
    let ends = match after.chars().next() {
        None | Some('\n' | '\r' | ',' | ']' | '}') => true,
        Some('#') => after.len() < line[end..].len(),
        Some(_) => false,
    };
    // `${{NAME}}: 1` is a key, which is always text.
    (begins && ends && !line[..end].ends_with(':')).then_some((from, end))
}
