//! Rules that select or exclude a canary ahead of the weights: first a field, then a cookie.

use yumen_config::InvalidSettings;
use yumen_config::resource::CanarySpec;
use yumen_plugin::{Exchange, PatternOptions, RegexPattern};

/// Compiled rules.
#[derive(Debug)]
pub struct CanaryRules {
    header: Option<CanaryHeader>,
    cookie: Option<Box<[u8]>>,
    /// Whether the rules also apply to clients of a session.
    pub ignores_session: bool,
}

#[derive(Debug)]
struct CanaryHeader {
    name: Box<str>,
    test: CanaryTest,
}

/// The values of the field that decide.
#[derive(Debug)]
enum CanaryTest {
    /// `always` and `never`.
    Words,
    /// This value selects; others leave the choice open.
    Value(Box<[u8]>),
    /// Values that match select; others leave the choice open.
    Pattern(RegexPattern),
}

impl CanaryRules {
    /// Compiles the rules.
    ///
    /// # Errors
    /// The pattern has syntax that no engine supports.
    pub fn build(written: &CanarySpec) -> Result<CanaryRules, InvalidSettings> {
        let header = written.header.as_ref().map(|header| {
            let test = match (&header.value, &header.pattern) {
                (Some(value), _) => CanaryTest::Value(value.as_bytes().into()),
                (None, Some(pattern)) => {
                    let compiled = RegexPattern::new(pattern, PatternOptions::default());
                    let refused =
                        |reason| InvalidSettings::at("header.pattern", format!("\"{pattern}\": {reason}"));
                    CanaryTest::Pattern(compiled.map_err(refused)?)
                }
                (None, None) => CanaryTest::Words,
            };
            Ok(CanaryHeader { name: header.name.as_str().into(), test })
        });
        Ok(CanaryRules {
            header: header.transpose()?,
            cookie: written.cookie.as_ref().map(|name| name.as_bytes().into()),
            ignores_session: written.ignores_session,
        })
    }

    /// Whether a request goes to the canary; `None` leaves the choice to the weights.
    pub fn verdict(&self, ex: &Exchange<'_>) -> Option<bool> {
        let by_header = self.header.as_ref().and_then(|header| {
            let value = ex.request.fields.get(&header.name)?;
            match &header.test {
                CanaryTest::Words => word(value),
                CanaryTest::Value(wanted) => (value == &**wanted).then_some(true),
                CanaryTest::Pattern(pattern) => {
                    ex.decided(pattern.is_match(value, ex.budget())).then_some(true)
                }
            }
        });
        by_header.or_else(|| word(ex.request.cookie(self.cookie.as_deref()?)?))
    }
}

fn word(value: &[u8]) -> Option<bool> {
    match value {
        b"always" => Some(true),
        b"never" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use yumen_config::resource::{RouteSpec, decode_value};

    use super::*;
    use crate::testing::with_exchange;

    /// Checks the verdict on a request with these fields.
    fn check(canary: Value, fields: &str, expected: Option<bool>) {
        let backends = json!([{ "upstream_id": "a" }, { "upstream_id": "b", "canary": canary.clone() }]);
        let route: RouteSpec = decode_value(json!({ "uri": "/*", "backends": backends })).unwrap();
        let written = route.backends.unwrap().pop().and_then(|backend| backend.canary).unwrap();
        let rules = CanaryRules::build(&written).unwrap();
        with_exchange(80, &format!("GET /\nHost: a{fields}"), |ex| {
            assert_eq!(rules.verdict(ex), expected, "{canary} {fields:?}");
        });
    }

    #[test]
    fn the_field_decides_before_the_cookie() {
        let words = json!({ "header": { "name": "X-Canary" }, "cookie": "canary" });
        check(words.clone(), "", None);
        check(words.clone(), "\nx-canary: always\nCookie: canary=never", Some(true));
        check(words.clone(), "\nX-Canary: never\nCookie: canary=always", Some(false));
        check(words.clone(), "\nX-Canary: other\nCookie: canary=always", Some(true));
        check(words, "\nCookie: canary=never", Some(false));
    }

    #[test]
    fn a_value_or_pattern_selects_and_never_excludes() {
        let value = json!({ "header": { "name": "X", "value": "v" }, "cookie": "c" });
        check(value.clone(), "\nX: v", Some(true));
        check(value.clone(), "\nX: always", None);
        check(value, "\nX: w\nCookie: c=always", Some(true));
        let pattern = json!({ "header": { "name": "X", "pattern": "^(de|at)$" } });
        check(pattern.clone(), "\nX: at", Some(true));
        check(pattern, "\nX: uk", None);
    }
}
