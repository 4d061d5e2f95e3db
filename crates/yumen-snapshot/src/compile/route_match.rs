//! The conditions of `match` in a route, compiled.

use yumen_config::InvalidSettings;
use yumen_config::resource as config;
use yumen_plugin::{PatternCase, PatternOptions, RegexPattern};

use crate::route::match_conditions::literal_begin;
use crate::route::{FieldCondition, MatchConditions, PathForm, PathPattern, ValueTest};

/// The compiled form of `match`.
#[derive(Default)]
pub(super) struct CompiledMatch {
    /// Paths in place of those of `uri`, with their form.
    pub(super) paths: Option<(Vec<Box<str>>, PathForm)>,
    pub(super) pattern: Option<PathPattern>,
    pub(super) conditions: Option<Box<MatchConditions>>,
}

impl CompiledMatch {
    /// Compiles `match` of a route.
    ///
    /// # Errors
    /// A pattern has syntax that no engine supports.
    pub(super) fn of(written: &config::RouteSpec) -> Result<CompiledMatch, InvalidSettings> {
        match &written.matching {
            Some(matching) => compile(matching).map_err(|invalid| invalid.under("match")),
            None => Ok(CompiledMatch::default()),
        }
    }
}

fn compile(written: &config::RouteMatchSpec) -> Result<CompiledMatch, InvalidSettings> {
    let pattern = written.path_regex.as_ref().map(path_pattern).transpose()?;
    let paths = match (&written.paths, &pattern) {
        (Some(paths), _) => Some(literal_paths(paths)?),
        (None, Some(pattern)) => Some((vec![pattern.text.clone()], PathForm::Regex)),
        (None, None) => None,
    };
    let headers = conditions(written.headers.as_deref().unwrap_or_default(), "headers")?;
    let queries = conditions(written.queries.as_deref().unwrap_or_default(), "queries")?;
    let is_needed = written.is_grpc || !headers.is_empty() || !queries.is_empty();
    let conditions = MatchConditions { headers, queries, is_grpc: written.is_grpc };
    Ok(CompiledMatch { paths, pattern, conditions: is_needed.then(|| Box::new(conditions)) })
}

/// The paths as texts in the notation of `uri`, in the order of the form.
fn literal_paths(written: &config::LiteralPathsSpec) -> Result<(Vec<Box<str>>, PathForm), InvalidSettings> {
    let too_many = |_| InvalidSettings::at("paths", "has too many paths");
    let form = PathForm::Literal {
        exact: u16::try_from(written.exact.len()).map_err(too_many)?,
        prefix: u16::try_from(written.prefix.len()).map_err(too_many)?,
    };
    let exact = written.exact.iter().map(|path| path.as_str().into());
    let prefix = written.prefix.iter().map(|path| format!("{}/*", path.trim_end_matches('/')).into());
    let begins = written.starts_with.iter().map(|path| format!("{path}*").into());
    Ok((exact.chain(prefix).chain(begins).collect(), form))
}

fn path_pattern(written: &config::PathRegexSpec) -> Result<PathPattern, InvalidSettings> {
    let case = if written.ignore_case { PatternCase::Insensitive } else { PatternCase::Sensitive };
    let options = PatternOptions { case, ..PatternOptions::default() };
    let end = if written.anchored_end { "$" } else { "" };
    // A pattern that brings its own anchor may have it twice.
    let regex = RegexPattern::new(&format!("^(?:{}){end}", written.pattern), options);
    let regex = regex.map_err(|reason| refused("path_regex.pattern", &written.pattern, &reason))?;
    Ok(PathPattern {
        text: written.pattern.as_str().into(),
        begin: literal_begin(written.pattern.strip_prefix('^').unwrap_or(&written.pattern)),
        ignores_case: written.ignore_case,
        regex,
    })
}

fn refused(path: &str, pattern: &str, reason: &str) -> InvalidSettings {
    InvalidSettings::at(path, format!("\"{pattern}\" is no pattern: {reason}"))
}

fn conditions(
    written: &[config::FieldMatchSpec],
    member: &str,
) -> Result<Box<[FieldCondition]>, InvalidSettings> {
    let condition = |(at, one): (usize, &config::FieldMatchSpec)| {
        let test = match (&one.value, &one.regex) {
            (Some(value), _) => ValueTest::Equals(value.as_bytes().into()),
            (None, Some(pattern)) => {
                let regex = RegexPattern::new(&format!("^(?:{pattern})$"), PatternOptions::default());
                let regex =
                    regex.map_err(|reason| refused(&format!("{member}[{at}].regex"), pattern, &reason))?;
                ValueTest::Matches(pattern.as_str().into(), regex)
            }
            (None, None) => ValueTest::Absent,
        };
        Ok(FieldCondition { name: one.name.as_str().into(), test })
    };
    written.iter().enumerate().map(condition).collect()
}
