//! Operators of conditions, with Lua's rules for equality and numbers.

use serde_json::Value;
use yumen_base::IpSet;

use crate::vars::VarValue;
use crate::{Exchange, PatternCase, PatternOptions, PatternUnit, RegexPattern, Var};

/// An operator with its right operand.
#[derive(Debug, Clone)]
pub(super) enum ConditionTest {
    Equal(ExprConstant),
    NotEqual(ExprConstant),
    /// Compares numbers; false if the right operand is no number.
    Compare(OrderOperator, Option<f64>),
    Matches(RegexPattern),
    In(Box<[ExprConstant]>),
    Has(ExprConstant),
    InNetwork(IpSet),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum OrderOperator {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ExprConstant {
    Nil,
    Text(Box<[u8]>),
    Number(f64),
    Bool(bool),
    /// A list or an object, which equals no value.
    Table,
}

impl ConditionTest {
    pub(super) const NAMES: [&str; 11] =
        ["==", "~=", ">", ">=", "<", "<=", "~~", "~*", "in", "has", "ipmatch"];

    pub(super) fn is_operator(name: &str) -> bool {
        Self::NAMES.contains(&name)
    }

    pub(super) fn parse(operator: &str, right: &Value) -> Result<ConditionTest, String> {
        // Converted once. Without a number, the comparison is never true.
        let compare = |order| Ok(ConditionTest::Compare(order, ExprConstant::of(right).number()));
        match operator {
            "==" => Ok(ConditionTest::Equal(ExprConstant::of(right))),
            "~=" => Ok(ConditionTest::NotEqual(ExprConstant::of(right))),
            ">" => compare(OrderOperator::Greater),
            ">=" => compare(OrderOperator::GreaterOrEqual),
            "<" => compare(OrderOperator::Less),
            "<=" => compare(OrderOperator::LessOrEqual),
            "~~" => regex(right, PatternCase::Sensitive).map(ConditionTest::Matches),
            "~*" => regex(right, PatternCase::Insensitive).map(ConditionTest::Matches),
            // Membership in anything but a list never holds.
            "in" => {
                Ok(ConditionTest::In(right.as_array().into_iter().flatten().map(ExprConstant::of).collect()))
            }
            "has" => Ok(ConditionTest::Has(ExprConstant::of(right))),
            "ipmatch" => networks(right).map(ConditionTest::InNetwork),
            unknown => Err(format!("invalid operator '{unknown}'")),
        }
    }

    pub(super) fn holds(&self, var: &Var, ex: &Exchange<'_>) -> bool {
        match self {
            ConditionTest::InNetwork(set) => var.ip(ex).is_some_and(|ip| set.contains(ip)),
            ConditionTest::Equal(constant) => constant.is(var.value(ex).as_ref()),
            ConditionTest::NotEqual(constant) => !constant.is(var.value(ex).as_ref()),
            ConditionTest::Compare(order, right) => {
                let left = var.value(ex).as_ref().and_then(number_of);
                left.zip(*right).is_some_and(|(left, right)| order.holds(left, right))
            }
            ConditionTest::Matches(regex) => match var.value(ex) {
                None | Some(VarValue::List(_)) => false,
                Some(value) => ex.decided(regex.is_match(&value.into_text(), ex.budget())),
            },
            ConditionTest::In(constants) => {
                let value = var.value(ex);
                value.is_some_and(|value| constants.iter().any(|constant| constant.is_same(&value)))
            }
            ConditionTest::Has(constant) => match var.value(ex) {
                Some(VarValue::List(items)) => items.iter().any(|item| constant.is_same(item)),
                _ => false,
            },
        }
    }
}

impl OrderOperator {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            OrderOperator::Greater => left > right,
            OrderOperator::GreaterOrEqual => left >= right,
            OrderOperator::Less => left < right,
            OrderOperator::LessOrEqual => left <= right,
        }
    }
}

impl ExprConstant {
    fn of(value: &Value) -> ExprConstant {
        match value {
            Value::Null => ExprConstant::Nil,
            Value::Bool(truth) => ExprConstant::Bool(*truth),
            Value::Number(number) => number.as_f64().map_or(ExprConstant::Table, ExprConstant::Number),
            Value::String(text) => ExprConstant::Text(text.as_bytes().into()),
            Value::Array(_) | Value::Object(_) => ExprConstant::Table,
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            ExprConstant::Number(number) => Some(*number),
            ExprConstant::Text(text) => number(text),
            _ => None,
        }
    }

    /// The operator `==`: a numeric right operand converts the left one to a number.
    fn is(&self, value: Option<&VarValue<'_>>) -> bool {
        match (self, value) {
            // In Lua, a variable without a value is `nil`.
            (ExprConstant::Nil, None) => true,
            (ExprConstant::Number(right), Some(left)) => number_of(left) == Some(*right),
            (_, Some(left)) => self.is_same(left),
            (_, None) => false,
        }
    }

    /// Lua equality without conversion: text never equals a number.
    fn is_same(&self, value: &VarValue<'_>) -> bool {
        match (self, value) {
            (ExprConstant::Text(right), VarValue::Text(left)) => **right == **left,
            (ExprConstant::Number(right), VarValue::Number(left)) => right == left,
            (ExprConstant::Bool(right), VarValue::Bool(left)) => right == left,
            _ => false,
        }
    }
}

fn number_of(value: &VarValue<'_>) -> Option<f64> {
    match value {
        VarValue::Number(number) => Some(*number),
        VarValue::Text(text) => number(text),
        VarValue::Bool(_) | VarValue::List(_) => None,
    }
}

/// Converts text to a number as Lua does: decimal or hexadecimal, with white space around it.
fn number(text: &[u8]) -> Option<f64> {
    // Lua also skips the vertical tab, which is no ASCII white space in Rust.
    let text = std::str::from_utf8(text).ok()?.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let size = match hex {
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok()? as f64
        }
        Some(_) => return None,
        // Rust would also accept a second sign and words for infinity and NaN.
        None if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') => digits.parse().ok()?,
        None => return None,
    };
    Some(if negative { -size } else { size })
}

/// Compiles a pattern over bytes, as PCRE without its UTF flag, or over Unicode if it requires that, such as
/// `\p{Greek}`.
fn regex(pattern: &Value, case: PatternCase) -> Result<RegexPattern, String> {
    let text = match pattern {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err("a regular expression has to be a string".to_owned()),
    };
    let build = |unit| RegexPattern::new(&text, PatternOptions { case, unit, ..PatternOptions::default() });
    build(PatternUnit::Byte)
        .or_else(|_| build(PatternUnit::Unicode))
        .map_err(|error| format!("invalid or unsupported regular expression '{text}': {error}"))
}

fn networks(right: &Value) -> Result<IpSet, String> {
    let text = |value: &Value| match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("invalid ip address: {value}")),
    };
    let texts: Vec<String> = match right {
        Value::Array(values) => values.iter().map(text).collect::<Result<_, String>>()?,
        value => vec![text(value)?],
    };
    IpSet::parse(texts.iter().map(String::as_str))
}
