//! Parser of Kong's router expressions. Must not know variables of the gateway.

/// A node of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum KongExprNode {
    All(Vec<KongExprNode>),
    Any(Vec<KongExprNode>),
    Not(Box<KongExprNode>),
    Call(FieldComparison),
}

/// A field compared with a literal.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FieldComparison {
    pub(super) field: String,
    /// Whether the comparison ignores case (`lower()`).
    pub(super) is_lowered: bool,
    pub(super) operator: String,
    pub(super) literal: KongExprLiteral,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum KongExprLiteral {
    Text(String),
    Number(i64),
    /// An IP address or a network.
    Address(String),
}

/// Maximum nesting of parentheses.
const DEPTH_MAX: usize = 64;

/// Operators; prefixes of others come last.
const OPERATORS: [&str; 12] = ["==", "!=", "^=", "=^", ">=", "<=", ">", "<", "~", "not in", "in", "contains"];

pub(super) fn parse(text: &str) -> Result<KongExprNode, String> {
    let mut reader = KongExprReader { rest: text.trim(), depth: 0 };
    let root = reader.any()?;
    match reader.rest.is_empty() {
        true => Ok(root),
        // A part that is ignored would be a condition that is lost.
        false => Err(format!("\"{}\" is not understood", reader.rest)),
    }
}

struct KongExprReader<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> KongExprReader<'t> {
    fn any(&mut self) -> Result<KongExprNode, String> {
        // `&&` binds more tightly than `||`.
        self.several("||", KongExprReader::all, KongExprNode::Any)
    }

    fn all(&mut self) -> Result<KongExprNode, String> {
        self.several("&&", KongExprReader::one, KongExprNode::All)
    }

    fn several(
        &mut self,
        between: &str,
        part: fn(&mut Self) -> Result<KongExprNode, String>,
        join: fn(Vec<KongExprNode>) -> KongExprNode,
    ) -> Result<KongExprNode, String> {
        let first = part(self)?;
        let mut nodes = vec![first];
        while self.takes(between) {
            nodes.push(part(self)?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { join(nodes) })
    }

    fn one(&mut self) -> Result<KongExprNode, String> {
        if self.takes("!") {
            // The language negates groups only.
            return Ok(KongExprNode::Not(Box::new(self.group()?)));
        }
        match self.rest.starts_with('(') {
            true => self.group(),
            false => self.call().map(KongExprNode::Call),
        }
    }

    fn group(&mut self) -> Result<KongExprNode, String> {
        self.needs("(")?;
        self.depth += 1;
        // The parser is recursive; the text must not exhaust the stack.
        if self.depth > DEPTH_MAX {
            return Err(format!("parentheses are deeper than {DEPTH_MAX}"));
        }
        let inside = self.any()?;
        self.depth -= 1;
        self.needs(")")?;
        Ok(inside)
    }

    fn call(&mut self) -> Result<FieldComparison, String> {
        let (mut is_lowered, mut closing) = (false, 0);
        let field = loop {
            let word = self.word(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
            match word {
                "lower" if self.takes("(") => is_lowered = true,
                // Conditions match if any value of a field does, so `any` is implied.
                "any" if self.takes("(") => {}
                "" => return Err(format!("a field is missing before \"{}\"", self.rest)),
                field => break field.to_owned(),
            }
            closing += 1;
        };
        for _ in 0..closing {
            self.needs(")")?;
        }
        let found = OPERATORS.into_iter().find(|operator| self.takes(operator));
        let operator = found.ok_or_else(|| format!("an operator is missing before \"{}\"", self.rest))?;
        let literal = self.literal()?;
        Ok(FieldComparison { field, is_lowered, operator: operator.to_owned(), literal })
    }

    fn literal(&mut self) -> Result<KongExprLiteral, String> {
        if let Some(raw) = self.rest.strip_prefix("r#\"") {
            let (text, rest) = raw.split_once("\"#").ok_or("a text has no end")?;
            self.rest = rest.trim_start();
            return Ok(KongExprLiteral::Text(text.to_owned()));
        }
        if let Some(quoted) = self.rest.strip_prefix('"') {
            return self.quoted(quoted).map(KongExprLiteral::Text);
        }
        let word = self.word(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '/' | '-'));
        if let Ok(number) = word.parse() {
            return Ok(KongExprLiteral::Number(number));
        }
        match yumen_base::IpSet::parse([word]) {
            Ok(_) if !word.is_empty() => Ok(KongExprLiteral::Address(word.to_owned())),
            _ => Err(format!("\"{word}\" is neither text nor number nor address")),
        }
    }

    fn quoted(&mut self, text: &'t str) -> Result<String, String> {
        let mut out = String::new();
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = text[at + 1..].trim_start();
                    return Ok(out);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, 'r')) => out.push('\r'),
                    Some((_, 't')) => out.push('\t'),
                    Some((_, other)) => out.push(other),
                    None => break,
                },
                other => out.push(other),
            }
        }
        Err("a text has no end".to_owned())
    }

    fn word(&mut self, allowed: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !allowed(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn takes(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest.trim_start();
        true
    }

    fn needs(&mut self, token: &str) -> Result<(), String> {
        match self.takes(token) {
            true => Ok(()),
            false => Err(format!("{token} is missing before \"{}\"", self.rest)),
        }
    }
}
