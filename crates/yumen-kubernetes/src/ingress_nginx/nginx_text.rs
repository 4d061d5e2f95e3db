//! Texts of NGINX with variables, such as `https://$host/auth?rd=$escaped_request_uri`.

use std::fmt;
use std::sync::Arc;

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextPart {
    /// Characters.
    Literal(Arc<str>),
    /// A variable by its name, without `$`.
    Variable(Arc<str>),
    /// A group of the last regular expression, 1 to 9.
    Group(u8),
}

impl TextPart {
    /// The characters, if it has no variable.
    pub fn as_literal(&self) -> Option<&str> {
        match self {
            TextPart::Literal(text) => Some(text),
            TextPart::Variable(_) | TextPart::Group(_) => None,
        }
    }
}

/// A text with variables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NginxText {
    /// The parts; two literals never follow each other.
    pub parts: Vec<TextPart>,
}

/// Why a text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextDefect {
    /// A `$` without a name.
    #[error("a variable has no name after `$`")]
    NoName,
    /// A `${` without `}`.
    #[error("`${{` has no `}}`")]
    NoBrace,
}

impl NginxText {
    /// Reads a text.
    pub fn parse(text: &str) -> Result<NginxText, TextDefect> {
        let mut parsed = NginxText::default();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            parsed.push_literal(&rest[..at]);
            rest = parsed.push_variable(&rest[at + 1..])?;
        }
        parsed.push_literal(rest);
        Ok(parsed)
    }

    /// A text without variables.
    pub fn literal(text: &str) -> NginxText {
        let mut literal = NginxText::default();
        literal.push_literal(text);
        literal
    }

    /// The text, if it has no variables.
    pub fn as_literal(&self) -> Option<&str> {
        match &self.parts[..] {
            [] => Some(""),
            [TextPart::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// The names of the variables.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TextPart::Variable(name) => Some(&**name),
            _ => None,
        })
    }

    /// Whether the text has groups of a regular expression.
    pub fn has_groups(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, TextPart::Group(_)))
    }

    /// Appends the parts of another text.
    pub(super) fn extend(&mut self, other: &NginxText) {
        for part in &other.parts {
            match part {
                TextPart::Literal(text) => self.push_literal(text),
                part => self.parts.push(part.clone()),
            }
        }
    }

    fn push_literal(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.parts.last_mut() {
            Some(TextPart::Literal(before)) => *before = format!("{before}{text}").into(),
            _ => self.parts.push(TextPart::Literal(text.into())),
        }
    }

    /// Reads the variable behind a `$`; returns the text after it.
    fn push_variable<'t>(&mut self, text: &'t str) -> Result<&'t str, TextDefect> {
        if let Some(digit @ b'1'..=b'9') = text.bytes().next() {
            self.parts.push(TextPart::Group(digit - b'0'));
            return Ok(&text[1..]);
        }
        if let Some(inner) = text.strip_prefix('{') {
            let (name, rest) = inner.split_once('}').ok_or(TextDefect::NoBrace)?;
            if name.is_empty() || !name.bytes().all(is_name_byte) {
                return Err(TextDefect::NoName);
            }
            self.parts.push(TextPart::Variable(name.into()));
            return Ok(rest);
        }
        let end = text.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(text.len());
        if end == 0 {
            return Err(TextDefect::NoName);
        }
        self.parts.push(TextPart::Variable(text[..end].into()));
        Ok(&text[end..])
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Formats as NGINX reads it.
impl fmt::Display for NginxText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                TextPart::Literal(text) => f.write_str(text)?,
                TextPart::Variable(name) => write!(f, "${{{name}}}")?,
                TextPart::Group(number) => write!(f, "${number}")?,
            }
        }
        Ok(())
    }
}
