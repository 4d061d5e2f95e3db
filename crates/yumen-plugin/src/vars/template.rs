//! Text with variables.

use super::{Var, is_data_value};
use crate::Exchange;

#[derive(Debug, Clone, PartialEq)]
enum TemplatePart {
    Text(Box<[u8]>),
    Var { var: Var, default: Option<Box<[u8]>> },
}

/// Text with `$name`, `${name}` and `${name ?? default}`.
///
/// `${$}` is a dollar sign. As in APISIX, a dollar sign after a backslash begins no variable, and the
/// backslash remains. A name without braces only contains dots if it begins with `post_arg.`.
#[derive(Debug, Clone, PartialEq)]
pub struct VarTemplate {
    parts: Box<[TemplatePart]>,
}

impl VarTemplate {
    /// Compiles `text`, a whole setting. A value from a reference has no variables.
    pub fn parse(text: &str) -> VarTemplate {
        if is_data_value(text) {
            return VarTemplate { parts: Box::new([TemplatePart::Text(text.as_bytes().into())]) };
        }
        VarTemplate::parse_written(text)
    }

    /// [`VarTemplate::parse`] for text that is known to be a template.
    pub fn parse_written(text: &str) -> VarTemplate {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            let escaped = rest[..dollar].ends_with('\\');
            let after = &rest[dollar + 1..];
            let variable = if escaped { None } else { braced(after).or_else(|| bare(after)) };
            let Some((part, used)) = variable else {
                literal.push_str(&rest[..=dollar]);
                rest = after;
                continue;
            };
            literal.push_str(&rest[..dollar]);
            push_text(&mut parts, &mut literal);
            parts.push(part);
            rest = &after[used..];
        }
        literal.push_str(rest);
        push_text(&mut parts, &mut literal);
        VarTemplate { parts: parts.into_boxed_slice() }
    }

    /// Appends the text with the values of its variables; those without a value are empty. Returns the number
    /// of variables with a value or default.
    pub fn render(&self, ex: &Exchange<'_>, out: &mut Vec<u8>) -> usize {
        let mut resolved = 0;
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.extend_from_slice(text),
                TemplatePart::Var { var, default } => {
                    if var.append(ex, out) {
                        resolved += 1;
                    } else if let Some(default) = default {
                        out.extend_from_slice(default);
                        resolved += 1;
                    }
                }
            }
        }
        resolved
    }

    /// The variable and its default, if the template consists of one variable.
    pub fn as_variable(&self) -> Option<(&Var, Option<&[u8]>)> {
        match &*self.parts {
            [TemplatePart::Var { var, default }] => Some((var, default.as_deref())),
            _ => None,
        }
    }

    /// The text, if the template consists of it.
    pub fn as_plain(&self) -> Option<&[u8]> {
        match &*self.parts {
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether the template has no variables.
    pub fn is_constant(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, TemplatePart::Text(_)))
    }

    /// Whether a variable is in the request body.
    pub fn needs_body(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, TemplatePart::Var { var, .. } if var.needs_body()))
    }
}

fn push_text(parts: &mut Vec<TemplatePart>, literal: &mut String) {
    if !literal.is_empty() {
        parts.push(TemplatePart::Text(std::mem::take(literal).into_bytes().into_boxed_slice()));
    }
}

fn braced(after: &str) -> Option<(TemplatePart, usize)> {
    let inside = after.strip_prefix('{')?;
    let end = inside.find('}')?;
    let (name, default) = match inside[..end].split_once("??") {
        Some((name, default)) => (name, Some(default.trim().as_bytes().into())),
        None => (&inside[..end], None),
    };
    let name = name.trim();
    if name == "$" {
        return Some((TemplatePart::Text(Box::new([b'$'])), end + 2));
    }
    (!name.is_empty()).then(|| (TemplatePart::Var { var: Var::parse(name), default }, end + 2))
}

fn bare(after: &str) -> Option<(TemplatePart, usize)> {
    let dotted = after.starts_with("post_arg.");
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || (dotted && c == '.');
    let end = after.find(|c| !in_name(c)).unwrap_or(after.len());
    // A dot at the end belongs to the text after the variable.
    let name = after[..end].trim_end_matches('.');
    (!name.is_empty()).then(|| (TemplatePart::Var { var: Var::parse(name), default: None }, name.len()))
}
