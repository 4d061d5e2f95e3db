//! Arguments of directives: texts with variables, sizes, times, and the variables that a snippet sets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plan::SnippetRefusal;
use super::syntax::{SnippetDirective, SnippetWord};
use crate::ingress_nginx::nginx_text::{NginxText, TextPart};
use crate::ingress_nginx::variables::request_variable;

/// Names of variables that a block sets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SetNames {
    /// By `set`.
    pub(super) texts: BTreeSet<Arc<str>>,
    /// By `auth_request_set`, with the field of the auth service's answer.
    pub(super) answers: BTreeMap<Arc<str>, Arc<str>>,
}

impl SetNames {
    /// Collects the names of a block and its `if` blocks.
    pub(super) fn collect(&mut self, directives: &[&SnippetDirective]) {
        for directive in directives {
            let name = directive.words.first().and_then(|word| word.text.strip_prefix('$'));
            match (directive.name.as_str(), name) {
                ("set", Some(name)) => {
                    self.texts.insert(name.into());
                }
                ("auth_request_set", Some(name)) => {
                    if let Some(field) = directive.words.get(1).and_then(|word| answer_field(&word.text)) {
                        self.answers.insert(name.into(), field);
                    }
                }
                ("if", _) => {
                    let block: Vec<&SnippetDirective> = directive.block.iter().flatten().collect();
                    self.collect(&block);
                }
                _ => {}
            }
        }
    }

    /// A text whose variables all have a value.
    pub(super) fn text(
        &self,
        directive: &SnippetDirective,
        word: &SnippetWord,
    ) -> Result<NginxText, SnippetRefusal> {
        let text =
            NginxText::parse(&word.text).map_err(|defect| directive.refuse(defect.to_string(), None))?;
        for name in text.variables() {
            if self.texts.contains(name) || request_variable(name).is_some() {
                continue;
            }
            let reason = match self.answers.contains_key(name) {
                true => format!(
                    "${name} is a field of the auth service's answer, which only proxy_set_header sends on"
                ),
                false => format!("the variable ${name} has no counterpart"),
            };
            return Err(directive.refuse(reason, None));
        }
        Ok(text)
    }

    /// A text of fields of the auth service's answer, for a field of the request; `None` if it names none.
    pub(super) fn answer_text(
        &self,
        directive: &SnippetDirective,
        word: &SnippetWord,
    ) -> Result<Option<NginxText>, SnippetRefusal> {
        let Ok(mut text) = NginxText::parse(&word.text) else { return Ok(None) };
        if !text.variables().any(|name| self.answers.contains_key(name)) {
            return Ok(None);
        }
        check_line(directive, word)?;
        for part in &mut text.parts {
            let field = match part {
                TextPart::Literal(_) => continue,
                TextPart::Variable(name) => self.answers.get(name).cloned(),
                TextPart::Group(_) => None,
            };
            let reason = "a field of the auth service's answer has no variables of the request beside it";
            *part = TextPart::Variable(field.ok_or_else(|| directive.refuse(reason, None))?);
        }
        Ok(Some(text))
    }

    /// A text without groups of a pattern, for a field.
    pub(super) fn plain_text(
        &self,
        directive: &SnippetDirective,
        word: &SnippetWord,
    ) -> Result<NginxText, SnippetRefusal> {
        check_line(directive, word)?;
        let text = self.text(directive, word)?;
        match text.has_groups() {
            true => Err(directive.refuse("groups of a pattern are not available here", None)),
            false => Ok(text),
        }
    }
}

/// Refuses line breaks and other control characters, which would end a field.
pub(super) fn check_line(directive: &SnippetDirective, word: &SnippetWord) -> Result<(), SnippetRefusal> {
    match word.text.chars().any(|character| character.is_control() && character != '\t') {
        true => Err(directive.refuse("the text has control characters", None)),
        false => Ok(()),
    }
}

/// The field that `$upstream_http_name` names.
fn answer_field(written: &str) -> Option<Arc<str>> {
    let name = written.strip_prefix("$upstream_http_")?;
    (!name.is_empty()).then(|| name.to_ascii_lowercase().replace('_', "-").into())
}

/// Values of variables at one place of a branch.
#[derive(Debug, Clone, Default)]
pub(super) struct SetValues(BTreeMap<Arc<str>, NginxText>);

impl SetValues {
    pub(super) fn set(&mut self, name: &Arc<str>, value: NginxText) {
        self.0.insert(name.clone(), value);
    }

    /// A text with the values of set variables, and with the names of Yumen for others.
    pub(super) fn settle(&self, text: &NginxText, names: &SetNames) -> NginxText {
        let mut settled = NginxText::default();
        for part in &text.parts {
            match part {
                TextPart::Variable(name) => match self.0.get(name) {
                    Some(value) => settled.extend(value),
                    // NGINX reads a variable that no `set` has reached as empty.
                    None if names.texts.contains(name) => {}
                    None => {
                        let known = request_variable(name).map_or_else(|| name.clone(), Arc::from);
                        settled.extend(&NginxText { parts: vec![TextPart::Variable(known)] });
                    }
                },
                other => settled.extend(&NginxText { parts: vec![other.clone()] }),
            }
        }
        settled
    }
}

/// Reads a time such as `60`, `60s` or `1m`, in milliseconds.
pub(super) fn time_ms(written: &str) -> Option<u64> {
    let unit = written.trim_start_matches(|character: char| character.is_ascii_digit());
    let number = written[..written.len() - unit.len()].parse::<u64>().ok()?;
    let factor = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 604_800_000,
        "M" => 2_592_000_000,
        "y" => 31_536_000_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Whether a text is a token (RFC 9110 §5.6.2).
pub(super) fn is_token(text: &str) -> bool {
    let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.len() <= 256 && text.bytes().all(is_token_byte)
}
