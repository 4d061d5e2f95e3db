//! Query arguments, and form-encoded text in general.

use axum::http::Uri;
use percent_encoding::percent_decode_str;

/// Arguments in the order of the query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QueryArguments(Vec<(String, String)>);

impl QueryArguments {
    pub(crate) fn of(uri: &Uri) -> QueryArguments {
        QueryArguments::parse(uri.query().unwrap_or_default())
    }

    pub(crate) fn parse(text: &str) -> QueryArguments {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        };
        QueryArguments(text.split('&').filter(|pair| !pair.is_empty()).map(pair).collect())
    }

    /// The first argument of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}
