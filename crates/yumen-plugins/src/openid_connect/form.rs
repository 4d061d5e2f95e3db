//! Forms and queries as `application/x-www-form-urlencoded`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use yumen_plugin::SubrequestSpec;

/// All but the unreserved characters (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Parameters in order; each name once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FormBody(Vec<(String, String)>);

impl FormBody {
    /// The percent-encoded text.
    pub(super) fn encode(text: &str) -> String {
        utf8_percent_encode(text, RESERVED).to_string()
    }

    /// Sets a parameter.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(one, _)| one == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }

    /// The parameters as text.
    pub(super) fn text(&self) -> String {
        let pair = |(name, value): &(String, String)| {
            format!("{}={}", FormBody::encode(name), FormBody::encode(value))
        };
        self.0.iter().map(pair).collect::<Vec<_>>().join("&")
    }

    /// Makes a call carry the parameters as its body.
    pub(super) fn write(&self, spec: &mut SubrequestSpec) {
        spec.fields.set("Content-Type", b"application/x-www-form-urlencoded");
        spec.fields.set("Accept", b"application/json");
        spec.body = self.text().into_bytes();
    }

    /// The URL with the parameters in its query.
    pub(super) fn url(&self, endpoint: &str) -> String {
        if self.0.is_empty() {
            return endpoint.to_owned();
        }
        // The endpoint may have a query, which is kept (RFC 6749 §3.1).
        let joint = match endpoint.split_once('?') {
            None => "?",
            Some((_, "")) => "",
            Some(_) => "&",
        };
        format!("{endpoint}{joint}{}", self.text())
    }
}
