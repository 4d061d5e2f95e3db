//! The matcher of a Casbin model: its grammar as a tree.
//!
//! Operators: `||`, `&&`, `!`, `==`, `!=`, `in (…)`, parentheses. Operands: members of `r` and `p`, texts, `true` and
//! `false`, calls of functions and role relations. All other grammar is refused.

use super::model::CasbinModel;
use super::patterns::PatternFunction;

/// Longest matcher in bytes.
const MATCHER_BYTES_MAX: usize = 16 * 1024;
/// Deepest nesting of a matcher.
const DEPTH_MAX: usize = 64;

/// An operand that is a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MatchTerm {
    /// A member of the request, by index.
    Request(usize),
    /// A member of the policy line, by index.
    Policy(usize),
    /// A text of the matcher.
    Text(String),
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MatchCondition {
    All(Vec<MatchCondition>),
    Any(Vec<MatchCondition>),
    Not(Box<MatchCondition>),
    Constant(bool),
    /// Both texts are equal.
    Equal(MatchTerm, MatchTerm),
    /// Both conditions have the same result.
    Same(Box<MatchCondition>, Box<MatchCondition>),
    /// A text is one of a list.
    In(MatchTerm, Vec<MatchTerm>),
    /// A text matches a pattern. `call` numbers the calls of the matcher.
    Pattern {
        call: usize,
        subject: MatchTerm,
    },
    /// A name has a role, by the index of the relation.
    Role {
        relation: usize,
        name: MatchTerm,
        role: MatchTerm,
        domain: Option<MatchTerm>,
    },
}

/// The pattern of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PatternCall {
    pub(crate) function: PatternFunction,
    pub(crate) pattern: PatternSource,
}

/// The place of a pattern, which is never the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PatternSource {
    Policy(usize),
    Text(String),
}

/// A parsed matcher.
#[derive(Debug)]
pub(crate) struct CasbinMatcher {
    pub(crate) condition: MatchCondition,
    pub(crate) calls: Vec<PatternCall>,
}

impl CasbinMatcher {
    /// Parses the matcher of a model.
    ///
    /// # Errors
    /// The matcher has grammar that is not evaluated here.
    pub(crate) fn parse(model: &CasbinModel) -> Result<CasbinMatcher, String> {
        if model.matcher.len() > MATCHER_BYTES_MAX {
            return Err(format!("the matcher is longer than {MATCHER_BYTES_MAX} bytes"));
        }
        let tokens = tokens(&model.matcher)?;
        let mut parser = MatcherParser { model, tokens: &tokens, at: 0, depth: 0, calls: Vec::new() };
        let condition = parser.any()?;
        match parser.peek() {
            None => Ok(CasbinMatcher { condition, calls: parser.calls }),
            Some(token) => Err(unexpected(token)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MatchToken {
    Name(String),
    Text(String),
    Symbol(&'static str),
}

/// Longer symbols first.
const SYMBOLS: [&str; 10] = ["&&", "||", "==", "!=", "!", "(", ")", ",", ".", "in"];

fn tokens(text: &str) -> Result<Vec<MatchToken>, String> {
    let (mut rest, mut found) = (text.trim_start(), Vec::new());
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_alphabetic() || first == '_' {
            let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
            let length = rest.find(|character| !is_part(character)).unwrap_or(rest.len());
            found.push(match &rest[..length] {
                "in" => MatchToken::Symbol("in"),
                name => MatchToken::Name(name.to_owned()),
            });
            length
        } else if first == '"' || first == '\'' {
            let inside = &rest[1..];
            let end = inside.find(first).ok_or("a text of the matcher has no end")?;
            // Escapes differ between the implementations of Casbin.
            if inside[..end].contains('\\') {
                return Err("a backslash in a text of the matcher is not evaluated here".to_owned());
            }
            found.push(MatchToken::Text(inside[..end].to_owned()));
            end + 2
        } else {
            let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
            let symbol =
                symbol.ok_or_else(|| format!("the matcher has `{first}`, which is not evaluated here"))?;
            found.push(MatchToken::Symbol(symbol));
            symbol.len()
        };
        rest = rest[length..].trim_start();
    }
    Ok(found)
}

fn unexpected(token: &MatchToken) -> String {
    let text = match token {
        MatchToken::Name(name) => name,
        MatchToken::Text(text) => text,
        MatchToken::Symbol(symbol) => *symbol,
    };
    format!("`{text}` is unexpected in the matcher")
}

/// A primary of the grammar: a condition or a text.
enum MatchOperand {
    Condition(MatchCondition),
    Term(MatchTerm),
}

struct MatcherParser<'m> {
    model: &'m CasbinModel,
    tokens: &'m [MatchToken],
    at: usize,
    depth: usize,
    calls: Vec<PatternCall>,
}

impl MatcherParser<'_> {
    fn peek(&self) -> Option<&MatchToken> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Result<MatchToken, String> {
        let token = self.tokens.get(self.at).ok_or("the matcher ends too early")?;
        self.at += 1;
        Ok(token.clone())
    }

    /// Takes a symbol if it is next.
    fn takes(&mut self, symbol: &str) -> bool {
        let is_next =
            self.peek().is_some_and(|token| matches!(token, MatchToken::Symbol(next) if *next == symbol));
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        match self.takes(symbol) {
            true => Ok(()),
            false => match self.peek() {
                Some(token) => Err(format!("{}, `{symbol}` is missing", unexpected(token))),
                None => Err(format!("the matcher ends too early, `{symbol}` is missing")),
            },
        }
    }

    fn any(&mut self) -> Result<MatchCondition, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("the matcher is nested deeper than {DEPTH_MAX}"));
        }
        let mut parts = vec![self.all()?];
        while self.takes("||") {
            parts.push(self.all()?);
        }
        self.depth -= 1;
        Ok(one_or(parts, MatchCondition::Any))
    }

    fn all(&mut self) -> Result<MatchCondition, String> {
        let mut parts = vec![self.comparison()?];
        while self.takes("&&") {
            parts.push(self.comparison()?);
        }
        Ok(one_or(parts, MatchCondition::All))
    }

    fn comparison(&mut self) -> Result<MatchCondition, String> {
        let left = self.operand()?;
        let is_equal = self.takes("==");
        if is_equal || self.takes("!=") {
            let compared = match (left, self.operand()?) {
                (MatchOperand::Term(left), MatchOperand::Term(right)) => MatchCondition::Equal(left, right),
                (MatchOperand::Condition(left), MatchOperand::Condition(right)) => {
                    MatchCondition::Same(Box::new(left), Box::new(right))
                }
                _ => return Err("the matcher compares a text with a condition".to_owned()),
            };
            return Ok(if is_equal { compared } else { MatchCondition::Not(Box::new(compared)) });
        }
        match left {
            MatchOperand::Term(term) if self.takes("in") => {
                self.expect("(")?;
                let mut list = vec![self.term()?];
                while self.takes(",") {
                    list.push(self.term()?);
                }
                self.expect(")")?;
                Ok(MatchCondition::In(term, list))
            }
            MatchOperand::Term(_) => {
                Err("a text of the matcher stands where a condition is needed".to_owned())
            }
            MatchOperand::Condition(condition) => Ok(condition),
        }
    }

    fn operand(&mut self) -> Result<MatchOperand, String> {
        if self.takes("!") {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return Err(format!("the matcher is nested deeper than {DEPTH_MAX}"));
            }
            let negated = match self.operand()? {
                MatchOperand::Condition(condition) => MatchCondition::Not(Box::new(condition)),
                MatchOperand::Term(_) => return Err("the matcher negates a text".to_owned()),
            };
            self.depth -= 1;
            return Ok(MatchOperand::Condition(negated));
        }
        if self.takes("(") {
            let inner = self.any()?;
            self.expect(")")?;
            return Ok(MatchOperand::Condition(inner));
        }
        match self.peek() {
            Some(MatchToken::Name(name)) if name == "true" || name == "false" => {
                let value = name == "true";
                self.at += 1;
                Ok(MatchOperand::Condition(MatchCondition::Constant(value)))
            }
            Some(MatchToken::Name(name)) if name != "r" && name != "p" => {
                let name = name.clone();
                self.at += 1;
                self.call(&name).map(MatchOperand::Condition)
            }
            _ => self.term().map(MatchOperand::Term),
        }
    }

    fn term(&mut self) -> Result<MatchTerm, String> {
        match self.next()? {
            MatchToken::Text(text) => Ok(MatchTerm::Text(text)),
            MatchToken::Name(name) if name == "r" || name == "p" => {
                self.expect(".")?;
                let MatchToken::Name(member) = self.next()? else {
                    return Err(format!("the matcher has no name after `{name}.`"));
                };
                let members = if name == "r" { &self.model.request } else { &self.model.policy };
                let index = members.iter().position(|known| *known == member);
                let index = index.ok_or_else(|| format!("{name}.{member} is not defined in the model"))?;
                if self.peek() == Some(&MatchToken::Symbol(".")) {
                    return Err(format!("{name}.{member} is a text and has no attributes"));
                }
                Ok(if name == "r" { MatchTerm::Request(index) } else { MatchTerm::Policy(index) })
            }
            token => Err(unexpected(&token)),
        }
    }

    /// A call of a function or a role relation; the name was taken.
    fn call(&mut self, name: &str) -> Result<MatchCondition, String> {
        let relation = self.model.relations.iter().position(|relation| relation.name == name);
        let function = PatternFunction::named(name);
        if relation.is_none() && function.is_none() {
            return Err(format!("the function {name} is not evaluated here"));
        }
        self.expect("(")?;
        let mut arguments = vec![self.term()?];
        while self.takes(",") {
            arguments.push(self.term()?);
        }
        self.expect(")")?;
        let wrong = |count: usize| format!("{name} needs {count} arguments");
        let mut arguments = arguments.into_iter();
        let (first, second, third) = (arguments.next(), arguments.next(), arguments.next());
        let (Some(first), Some(second), None) = (first, second, arguments.next()) else {
            return Err(wrong(2));
        };
        if let Some(relation) = relation {
            let has_domain = self.model.relations[relation].has_domain;
            return match has_domain == third.is_some() {
                true => Ok(MatchCondition::Role { relation, name: first, role: second, domain: third }),
                false => Err(wrong(if has_domain { 3 } else { 2 })),
            };
        }
        let (Some(function), None) = (function, third) else { return Err(wrong(2)) };
        let pattern = match second {
            MatchTerm::Policy(index) => PatternSource::Policy(index),
            MatchTerm::Text(text) => PatternSource::Text(text),
            // A client must not choose the pattern.
            MatchTerm::Request(_) => {
                return Err(format!("the second argument of {name} is a pattern: a member of p or a text"));
            }
        };
        self.calls.push(PatternCall { function, pattern });
        Ok(MatchCondition::Pattern { call: self.calls.len() - 1, subject: first })
    }
}

fn one_or(mut parts: Vec<MatchCondition>, many: fn(Vec<MatchCondition>) -> MatchCondition) -> MatchCondition {
    match parts.len() {
        1 => parts.remove(0),
        _ => many(parts),
    }
}
