//! `log-format-upstream` in the notation of the access log's `line`.

use super::nginx_text::{NginxText, TextPart};
use super::variables::log_variable;

/// A line of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedLogLine {
    /// The line, for `logs.access.line`.
    pub line: String,
    /// Variables that the access log lacks, written as `-`.
    pub unknown: Vec<String>,
}

/// Translates a line of NGINX's `log_format`.
pub fn translate_log_line(written: &str) -> Result<TranslatedLogLine, super::TextDefect> {
    let mut translated = TranslatedLogLine { line: String::new(), unknown: Vec::new() };
    for part in NginxText::parse(written)?.parts {
        match part {
            TextPart::Literal(text) => translated.line.push_str(&text),
            TextPart::Group(_) => translated.line.push('-'),
            TextPart::Variable(name) => match log_variable(&name) {
                // Braces separate the name from letters that follow.
                Some(known) => translated.line.push_str(&format!("${{{known}}}")),
                None => {
                    translated.line.push('-');
                    translated.unknown.push(name.to_string());
                }
            },
        }
    }
    Ok(translated)
}

#[cfg(test)]
mod tests;
