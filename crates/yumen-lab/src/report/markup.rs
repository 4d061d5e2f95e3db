//! Writes elements of HTML and SVG so that they always nest and nothing a run recorded is read as markup.
//!
//! Knows no chart and no report.

use std::fmt::Write;

/// A growing piece of markup. Elements close in the order in which they were opened.
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

    /// An element without content, such as `<path …/>` or `<br/>`.
    pub(crate) fn void(&mut self, name: &'static str, attributes: &[(&str, &str)]) -> &mut Self {
        self.tag(name, attributes, "/>");
        self
    }

    /// Closes the element opened last.
    pub(crate) fn close(&mut self) -> &mut Self {
        let name = self.open.pop().expect("each close has its open in the same function");
        let _ = write!(self.text, "</{name}>");
        self
    }

    /// Text, escaped.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        escape(text, &mut self.text);
        self
    }

    /// An element that holds nothing but text.
    pub(crate) fn leaf(&mut self, name: &'static str, attributes: &[(&str, &str)], text: &str) -> &mut Self {
        self.open(name, attributes).text(text).close()
    }

    /// A break between lines of the file, which a reader does not see.
    pub(crate) fn line(&mut self) -> &mut Self {
        self.text.push('\n');
        self
    }

    /// Markup made elsewhere, or a constant of ours: taken as it is.
    pub(crate) fn raw(&mut self, markup: &str) -> &mut Self {
        self.text.push_str(markup);
        self
    }

    /// All of it.
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

/// A coordinate: a tenth of a pixel is finer than anybody sees.
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
            // what XML cannot hold, such as colour codes of a terminal
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}
