//! Writes HTML and SVG elements. Elements always nest, and recorded text is always escaped.
//!
//! Independent of charts and reports.

use std::fmt::Write;

/// Markup under construction. Elements close in reverse order of opening.
#[derive(Debug, Default)]
pub(crate) struct MarkupWriter {
    text: String,
    open: Vec<&'static str>,
}

impl MarkupWriter {
    /// Opens an element.
    pub(crate) fn open(&mut self, name: &'static str, attributes: &[(&str, &str)]) -> &mut Self {
        self.tag(name, attributes, ">");
        self.open.push(name);
        self
    }

    /// Writes an element without content, such as `<path …/>` or `<br/>`.
    pub(crate) fn void(&mut self, name: &'static str, attributes: &[(&str, &str)]) -> &mut Self {
        self.tag(name, attributes, "/>");
        self
    }

    /// Closes the innermost open element.
    pub(crate) fn close(&mut self) -> &mut Self {
        let name = self.open.pop().expect("each close has its open in the same function");
        let _ = write!(self.text, "</{name}>");
        self
    }

    /// Writes escaped text.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        escape(text, &mut self.text);
        self
    }

    /// Writes an element that contains only text.
    pub(crate) fn leaf(&mut self, name: &'static str, attributes: &[(&str, &str)], text: &str) -> &mut Self {
        self.open(name, attributes).text(text).close()
    }

    /// Writes a line break of the source, which is not rendered.
    pub(crate) fn line(&mut self) -> &mut Self {
        self.text.push('\n');
        self
    }

    /// Writes markup unescaped: constants, or the output of another writer.
    pub(crate) fn raw(&mut self, markup: &str) -> &mut Self {
        self.text.push_str(markup);
        self
    }

    /// Returns the finished markup.
    pub(crate) fn finish(self) -> String {
        debug_assert!(self.open.is_empty(), "left open: {:?}", self.open);
        self.text
    }

    fn tag(&mut self, name: &str, attributes: &[(&str, &str)], end: &str) {
        let _ = write!(self.text, "<{name}");
        for (key, value) in attributes {
            let _ = write!(self.text, " {key}=\"");
            escape(value, &mut self.text);
            self.text.push('"');
        }
        self.text.push_str(end);
    }
}

/// Formats a coordinate with a resolution of a tenth of a pixel.
pub(crate) fn coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Control characters are invalid in XML; terminal colour codes contain them.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}
