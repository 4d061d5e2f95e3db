//! Directives of the rewrite module, in order.

use std::sync::Arc;

use yumen_plugin::{PatternOptions, RegexPattern};

use super::SnippetPlace;
use super::effects::{BlockEffects, STEP_NAMES};
use super::plan::{SnippetNote, SnippetRefusal, SnippetTest};
use super::syntax::{SnippetDirective, SnippetWord};
use super::values::check_line;
use crate::ingress_nginx::nginx_text::{NginxText, TextPart};

/// A condition of `if`, before variables have their values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StepCondition {
    pub(super) variable: Arc<str>,
    pub(super) test: SnippetTest,
    pub(super) negated: bool,
}

/// The end of `rewrite`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RewriteEnd {
    /// A redirect with this status.
    Redirect(u16),
    /// The path for the service.
    Break,
    /// A path by which the host chooses the location once more.
    Relocate,
}

/// The effect of a step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum StepAction {
    Set { variable: Arc<str>, value: NginxText },
    If { condition: StepCondition, steps: Vec<SnippetStep>, effects: Box<BlockEffects> },
    Return { status: u16, text: Option<NginxText> },
    Rewrite { pattern: Arc<str>, to: NginxText, keep_query: bool, end: RewriteEnd },
    Break,
}

/// A directive of the rewrite module.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SnippetStep {
    pub(super) action: StepAction,
    /// The directive without its words, for refusals.
    pub(super) source: SnippetDirective,
}

/// Reads the steps of a block.
pub(super) fn read_steps(
    directives: &[&SnippetDirective],
    place: SnippetPlace,
    base: &BlockEffects,
    notes: &mut Vec<SnippetNote>,
) -> Result<Vec<SnippetStep>, SnippetRefusal> {
    let mut reader = StepReader { place, base, notes };
    reader.read_all(directives, false)
}

struct StepReader<'r> {
    place: SnippetPlace,
    base: &'r BlockEffects,
    notes: &'r mut Vec<SnippetNote>,
}

impl StepReader<'_> {
    fn read_all(
        &mut self,
        directives: &[&SnippetDirective],
        in_if: bool,
    ) -> Result<Vec<SnippetStep>, SnippetRefusal> {
        let mut steps = Vec::new();
        for (at, directive) in directives.iter().enumerate() {
            let is_step = |one: &&SnippetDirective| STEP_NAMES.contains(&one.name.as_str());
            let is_final = !in_if && !directives[at + 1..].iter().any(is_step);
            let action = match directive.name.as_str() {
                "set" => self.read_set(directive)?,
                "if" if in_if => return Err(directive.refuse("NGINX does not allow `if` in `if`", None)),
                "if" => self.read_if(directive)?,
                "return" => self.read_return(directive)?,
                "rewrite" => self.read_rewrite(directive, is_final)?,
                "break" => StepAction::Break,
                "location" => return Err(directive.refuse("NGINX does not allow the block here", None)),
                _ => continue,
            };
            if self.place == SnippetPlace::Auth {
                let reason = "only proxy_set_header has a translation for the request to an auth service";
                return Err(directive.refuse(reason, None));
            }
            let source = SnippetDirective { words: Vec::new(), block: None, ..(*directive).clone() };
            steps.push(SnippetStep { action, source });
        }
        Ok(steps)
    }

    fn read_set(&mut self, directive: &SnippetDirective) -> Result<StepAction, SnippetRefusal> {
        let [name, value] = &directive.words[..] else {
            return Err(directive.refuse("the form is `set $NAME VALUE`", None));
        };
        let Some(variable) = variable_name(&name.text) else {
            return Err(directive.refuse(format!("{:?} is no variable", name.text), None));
        };
        // ingress-nginx reads some of its own variables later; a change of them is not followed.
        if crate::ingress_nginx::variables::request_variable(variable).is_some() {
            return Err(directive.refuse(format!("${variable} is a variable of the request"), None));
        }
        let value = self.base.names.plain_text(directive, value)?;
        Ok(StepAction::Set { variable: variable.into(), value })
    }

    fn read_if(&mut self, directive: &SnippetDirective) -> Result<StepAction, SnippetRefusal> {
        let Some(block) = &directive.block else {
            return Err(directive.refuse("`if` needs a block", None));
        };
        let block: Vec<&SnippetDirective> = block.iter().collect();
        let condition = self.read_condition(directive)?;
        let effects = Box::new(self.base.read_if(&block, self.place, self.notes)?);
        Ok(StepAction::If { condition, steps: self.read_all(&block, true)?, effects })
    }

    fn read_condition(&self, directive: &SnippetDirective) -> Result<StepCondition, SnippetRefusal> {
        let words = condition_words(directive)?;
        let refuse = |reason: &str| directive.refuse(reason, None);
        let Some(variable) = words.first().and_then(|word| variable_name(word)) else {
            return Err(refuse("only conditions on variables have a translation, not those on files"));
        };
        let names = &self.base.names;
        let is_known = names.texts.contains(variable)
            || crate::ingress_nginx::variables::request_variable(variable).is_some();
        if !is_known {
            return Err(refuse(&format!("the variable ${variable} has no counterpart")));
        }
        let (test, negated) = match &words[1..] {
            [] => (SnippetTest::IsSet, false),
            [operator, value] => match operator.as_str() {
                "=" => (SnippetTest::Equals(value.as_str().into()), false),
                "!=" => (SnippetTest::Equals(value.as_str().into()), true),
                "~" | "~*" | "!~" | "!~*" => {
                    check_pattern(directive, value)?;
                    let ignore_case = operator.ends_with('*');
                    let test = SnippetTest::Matches { pattern: value.as_str().into(), ignore_case };
                    (test, operator.starts_with('!'))
                }
                _ => return Err(refuse(&format!("{operator:?} is no operator of `if`"))),
            },
            _ => return Err(refuse("the form is `if ($VARIABLE OPERATOR VALUE)`")),
        };
        if let SnippetTest::Equals(text) = &test
            && text.contains('$')
        {
            return Err(refuse("a comparison with a variable has no translation"));
        }
        Ok(StepCondition { variable: variable.into(), test, negated })
    }

    fn read_return(&mut self, directive: &SnippetDirective) -> Result<StepAction, SnippetRefusal> {
        let (status, text) = match &directive.words[..] {
            [only] => match only.text.parse::<u16>() {
                Ok(status) => (status, None),
                Err(_) => (302, Some(only)),
            },
            [status, text] => match status.text.parse::<u16>() {
                Ok(status) => (status, Some(text)),
                Err(_) => return Err(directive.refuse(format!("{:?} is no status", status.text), None)),
            },
            _ => return Err(directive.refuse("the form is `return STATUS [TEXT]`", None)),
        };
        if !(200..600).contains(&status) {
            return Err(directive.refuse(format!("a response has no status {status}"), None));
        }
        if let Some(word) = text.filter(|_| (300..400).contains(&status)) {
            check_line(directive, word)?;
        }
        let text = text.map(|word| self.text_without_groups(directive, word)).transpose()?;
        Ok(StepAction::Return { status, text })
    }

    fn text_without_groups(
        &self,
        directive: &SnippetDirective,
        word: &SnippetWord,
    ) -> Result<NginxText, SnippetRefusal> {
        let text = self.base.names.text(directive, word)?;
        let reason = "groups of the pattern of `if` are not available";
        let way_over = Some("use from-to-www-redirect, or one Ingress for each host");
        if text.has_groups() { Err(directive.refuse(reason, way_over)) } else { Ok(text) }
    }

    fn read_rewrite(
        &mut self,
        directive: &SnippetDirective,
        is_final: bool,
    ) -> Result<StepAction, SnippetRefusal> {
        let (pattern, to, flag) = match &directive.words[..] {
            [pattern, to] => (pattern, to, ""),
            [pattern, to, flag] => (pattern, to, flag.text.as_str()),
            _ => return Err(directive.refuse("the form is `rewrite PATTERN REPLACEMENT FLAG`", None)),
        };
        check_pattern(directive, &pattern.text)?;
        check_line(directive, to)?;
        let keep_query = !to.text.ends_with('?');
        let written = SnippetWord { text: to.text.trim_end_matches('?').to_owned(), is_quoted: to.is_quoted };
        let to = self.base.names.text(directive, &written)?;
        let end = match flag {
            "permanent" => RewriteEnd::Redirect(301),
            "redirect" => RewriteEnd::Redirect(302),
            "" if is_url(&to) => RewriteEnd::Redirect(302),
            // NGINX chooses the location after the directives of the server.
            "break" if self.place == SnippetPlace::Server => RewriteEnd::Relocate,
            "break" => RewriteEnd::Break,
            "last" => RewriteEnd::Relocate,
            "" if is_final => RewriteEnd::Relocate,
            "" => {
                let reason = "the directives after it would have to read the new path";
                return Err(directive.refuse(reason, Some("write the flag `last` or `break`")));
            }
            _ => return Err(directive.refuse(format!("{flag:?} is no flag"), None)),
        };
        Ok(StepAction::Rewrite { pattern: pattern.text.as_str().into(), to, keep_query, end })
    }
}

/// Whether a replacement is a URL.
pub(super) fn is_url(text: &NginxText) -> bool {
    match text.parts.first() {
        Some(TextPart::Literal(literal)) => literal.starts_with("http://") || literal.starts_with("https://"),
        Some(TextPart::Variable(name)) => matches!(&**name, "scheme" | "pass_access_scheme"),
        _ => false,
    }
}

/// The name of `$name` or `${name}`.
fn variable_name(written: &str) -> Option<&str> {
    let name = written.strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(name);
    let is_name = !name.is_empty()
        && !name.starts_with(|character: char| character.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some(name)
}

/// The words between the parentheses of `if`.
fn condition_words(directive: &SnippetDirective) -> Result<Vec<String>, SnippetRefusal> {
    let refuse = || directive.refuse("the condition needs parentheses", None);
    let mut words: Vec<(String, bool)> =
        directive.words.iter().map(|word| (word.text.clone(), word.is_quoted)).collect();
    let first = words.first_mut().ok_or_else(refuse)?;
    first.0 = first.0.strip_prefix('(').ok_or_else(refuse)?.to_owned();
    let last = words.last_mut().ok_or_else(refuse)?;
    last.0 = last.0.strip_suffix(')').ok_or_else(refuse)?.to_owned();
    // Parentheses with spaces around them leave empty words; an empty word in quotes is a value.
    let words = words.into_iter().filter(|(text, is_quoted)| *is_quoted || !text.is_empty());
    Ok(words.map(|(text, _)| text).collect())
}

/// Refuses a pattern that the gateway's engines do not accept.
pub(super) fn check_pattern(directive: &SnippetDirective, pattern: &str) -> Result<(), SnippetRefusal> {
    match RegexPattern::new(pattern, PatternOptions::default()) {
        Ok(_) => Ok(()),
        Err(reason) => Err(directive.refuse(format!("the pattern {pattern:?} is not valid: {reason}"), None)),
    }
}
