//! decK's templates in the text of a file, `${{ env "NAME" }}`. Must not know their values.
//!
//! decK renders a file before it reads YAML, so a template may contain quotes that would end a scalar of YAML. A marker of
//! the same width replaces each template while the text is parsed: values of variables are never parsed as part of the file.

/// Begins a marker; a private-use character of Unicode.
const BEGIN: char = '\u{E000}';
/// Ends a marker, and fills it up to the width of its template.
const END: char = '\u{E001}';

/// A template that a marker replaces.
#[derive(Debug)]
struct MarkedTemplate {
    /// The text between the braces.
    inside: String,
    /// Whether a quote precedes the template.
    is_quoted: bool,
}

/// The templates of a file.
#[derive(Debug, Default)]
pub(super) struct DeckTemplates(Vec<MarkedTemplate>);

/// A part of a text.
#[derive(Debug, PartialEq)]
pub(super) enum DeckPiece<'t> {
    Text(&'t str),
    Template {
        inside: &'t str,
        /// Whether the value is text, even if it looks like a list.
        is_quoted: bool,
    },
}

impl DeckTemplates {
    /// Replaces the templates of a file by markers.
    pub(super) fn mark(text: &str) -> (String, DeckTemplates) {
        let mut templates = DeckTemplates::default();
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${{") {
            let Some((inside, after)) = after.split_once("}}") else { break };
            out.push_str(before);
            let index = templates.0.len().to_string();
            // The same width keeps the columns of a syntax error.
            let fill = (inside.chars().count() + 5).saturating_sub(index.len() + 1).max(1);
            out.push(BEGIN);
            out.push_str(&index);
            out.extend(std::iter::repeat_n(END, fill));
            let is_quoted = before.ends_with(['"', '\'']);
            templates.0.push(MarkedTemplate { inside: inside.to_owned(), is_quoted });
            rest = after;
        }
        out.push_str(rest);
        (out, templates)
    }

    /// Whether a text has a template.
    pub(super) fn are_in(&self, text: &str) -> bool {
        text.contains(BEGIN) || text.contains("${{")
    }

    /// Whether the file has no template.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Divides a text of the parsed file at its templates.
    ///
    /// # Errors
    /// A template has no end.
    pub(super) fn pieces<'t>(&'t self, text: &'t str) -> Result<Vec<DeckPiece<'t>>, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find([BEGIN, '$']) {
            let Some((template, after)) = self.template(&rest[at..])? else {
                // No template begins here: the character is text.
                let next = at + rest[at..].chars().next().map_or(1, char::len_utf8);
                pieces.push(DeckPiece::Text(&rest[..next]));
                rest = &rest[next..];
                continue;
            };
            if at > 0 {
                pieces.push(DeckPiece::Text(&rest[..at]));
            }
            pieces.push(template);
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(DeckPiece::Text(rest));
        }
        Ok(pieces)
    }

    /// The template at the beginning of a text, and the text after it.
    fn template<'t>(&'t self, text: &'t str) -> Result<Option<(DeckPiece<'t>, &'t str)>, String> {
        if let Some(after) = text.strip_prefix("${{") {
            let (inside, after) = after.split_once("}}").ok_or("the reference has no end }}")?;
            return Ok(Some((DeckPiece::Template { inside, is_quoted: true }, after)));
        }
        let marked =
            text.strip_prefix(BEGIN).and_then(|rest| rest.split_once(END)).and_then(|(index, after)| {
                let MarkedTemplate { inside, is_quoted } = self.0.get(index.parse::<usize>().ok()?)?;
                Some((DeckPiece::Template { inside, is_quoted: *is_quoted }, after.trim_start_matches(END)))
            });
        Ok(marked)
    }
}
