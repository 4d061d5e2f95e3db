//! `redirect`: sends clients elsewhere: to HTTPS, to a fixed target, or to what a pattern makes of theirs.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::Invalid;
use yumen_http::uri::{encode_path, escape};
use yumen_plugin::{Configure, Exchange, Foreseen, Method, Phases, Plugin, Response, Setup, Step};

use crate::pattern::{self, Replacement, Substitution};
use crate::text::{Text, answerable, decoded};

/// The settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [{"required": ["uri"]}, {"required": ["regex_uri"]}, {"required": ["http_to_https"]}]))]
pub(crate) struct Config {
    /// Status of the redirection; above 999 is 999.
    #[serde(default = "found")]
    #[schemars(range(min = 200))]
    ret_code: u64,
    /// Where to; variables are filled in.
    #[schemars(
        length(min = 2),
        regex(pattern = r"(\\\$[0-9a-zA-Z_]+)|\$\{([0-9a-zA-Z_]+)\}|\$([0-9a-zA-Z_]+)|(\$|[^$\\]+)")
    )]
    uri: Option<String>,
    /// A pattern over the path, and what its match becomes.
    #[schemars(length(min = 2, max = 2))]
    regex_uri: Option<Vec<String>>,
    /// Send plain requests to HTTPS: with 301 for GET and HEAD, with 308 for others.
    http_to_https: Option<bool>,
    /// Whether the path of the new target is percent-encoded.
    #[serde(default)]
    encode_uri: bool,
    /// Whether the query of the request is added.
    #[serde(default)]
    append_query_string: bool,
}

fn found() -> u64 {
    302
}

enum Target {
    /// To HTTPS on one of these ports; none stands for 443.
    Https(Box<[u16]>),
    Uri(Template<Text>),
    Path(Template<Substitution>),
    Nowhere,
}

/// What makes a target of a request.
struct Template<T> {
    makes: T,
    /// Whether the settings name a scheme or an authority. Where they name none, no request may.
    names_where: bool,
}

impl<T> Template<T> {
    fn new(written: &str, makes: T) -> Template<T> {
        let first_segment = written.split('/').next().unwrap_or_default();
        Template { makes, names_where: first_segment.contains(':') || written.starts_with("//") }
    }
}

/// Sends clients elsewhere.
pub(crate) struct Redirect {
    status: u16,
    target: Target,
    encodes: bool,
    appends_query: bool,
}

impl Configure for Redirect {
    const NAME: &'static str = "redirect";
    const PRIORITY: i32 = 900;
    type Config = Config;

    fn build(config: Config, setup: &Setup<'_>) -> Result<Self, Invalid> {
        let to_https = config.http_to_https == Some(true);
        if to_https && config.append_query_string {
            let message = "only one of `http_to_https` and `append_query_string` can be configured.";
            return Err(Invalid::new(message));
        }
        let target = match (&config.uri, config.regex_uri.as_deref()) {
            _ if to_https => Target::Https(setup.node.tls_ports.as_slice().into()),
            (Some(uri), _) if config.encode_uri => {
                Target::Uri(Template::new(uri, Text::parse_dotless(&decoded(uri))))
            }
            (Some(uri), _) => Target::Uri(Template::new(uri, Text::parse_dotless(uri))),
            (None, Some([regex, by])) => {
                let regex = pattern::compile(regex, "regex_uri")?;
                let makes = Substitution::new(regex, Replacement::parse(by, "regex_uri")?);
                Target::Path(Template::new(by, makes))
            }
            (None, Some(_)) => return Err(Invalid::at("regex_uri", "a pattern and a template are needed")),
            (None, None) => Target::Nowhere,
        };
        let (encodes, appends_query) = (config.encode_uri, config.append_query_string);
        Ok(Redirect { status: answerable(config.ret_code), target, encodes, appends_query })
    }
}

impl Redirect {
    fn location(&self, ex: &Exchange<'_>) -> Option<Vec<u8>> {
        let mut location = Vec::with_capacity(64);
        let edit = |location: &mut Vec<u8>, start: usize| self.escape(location, start);
        match &self.target {
            Target::Https(ports) => https(ports, ex, &mut location),
            Target::Uri(uri) => {
                uri.makes.fill(ex, None, &mut location, edit);
                if !uri.names_where {
                    keep_authority(&mut location);
                }
            }
            Target::Path(path) => {
                location = ex.decided(path.makes.first_edited(ex.request.path(), &ex.budget, edit))?.0;
                if !path.names_where {
                    keep_authority(&mut location);
                    keep_scheme(&mut location);
                }
            }
            Target::Nowhere => return None,
        }
        let question = location.iter().position(|byte| *byte == b'?');
        if self.encodes {
            let (path, query) = location.split_at(question.unwrap_or(location.len()));
            let mut encoded = Vec::with_capacity(location.len() + 8);
            encode_path(path, &mut encoded);
            encoded.extend_from_slice(query);
            location = encoded;
        }
        if let (true, Some(query)) =
            (self.appends_query, ex.request.query().filter(|query| !query.is_empty()))
        {
            location.push(if question.is_some() { b'&' } else { b'?' });
            location.extend_from_slice(query);
        }
        Some(location)
    }

    /// Escapes what a request has brought into the target from `start` on, so that browsers find nothing there to
    /// drop, as they do with tabs, or to take for a slash. What will be encoded as a path waits for that.
    fn escape(&self, location: &mut Vec<u8>, start: usize) {
        let query = || location.iter().position(|byte| *byte == b'?').unwrap_or(location.len());
        let from = if self.encodes { query().max(start) } else { start };
        escape_from(location, from, |byte| matches!(byte, 0..=b' ' | 0x7f | b'\\'));
    }
}

/// Keeps a path whose beginning a request has made from naming an authority.
fn keep_authority(location: &mut Vec<u8>) {
    let slashes = location.iter().take_while(|byte| **byte == b'/').count();
    location.drain(..slashes.saturating_sub(1));
}

/// Keeps a first segment that a request has made from naming a scheme. A path holds no whole URL, since slashes are
/// merged in it; a variable that begins a target may.
fn keep_scheme(location: &mut Vec<u8>) {
    let end = location.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(location.len());
    let rest = location.split_off(end);
    escape_from(location, 0, |byte| byte == b':');
    location.extend_from_slice(&rest);
}

fn escape_from(location: &mut Vec<u8>, from: usize, is_escaped: impl Fn(u8) -> bool) {
    if location[from..].iter().any(|byte| is_escaped(*byte)) {
        for byte in location.split_off(from) {
            if is_escaped(byte) {
                escape(byte, location);
            } else {
                location.push(byte);
            }
        }
    }
}

fn https(ports: &[u16], ex: &Exchange<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"https://");
    out.extend_from_slice(ex.request.host());
    let port = match ports {
        [] => 443,
        [one] => *one,
        many => many[(ex.host.random() % many.len() as u64) as usize],
    };
    if port != 443 && port != 0 {
        out.extend_from_slice(format!(":{port}").as_bytes());
    }
    // The client gets back what it said, a credential that is hidden from the upstream included.
    out.extend_from_slice(&ex.request.encoded_request_uri_for_client());
}

impl Plugin for Redirect {
    fn phases(&self) -> Phases {
        Phases::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let mut status = self.status;
        if let Target::Https(_) = self.target {
            let told = ex.request.fields.get("X-Forwarded-Proto");
            if told.unwrap_or(ex.client.scheme().as_bytes()) == b"https" {
                return Step::Continue;
            }
            if ex.request.host().is_empty() {
                return Step::Respond(Response::error_msg(
                    400,
                    "a request without a host cannot be sent to https",
                ));
            }
            status = if matches!(ex.request.method(), Method::Get | Method::Head) { 301 } else { 308 };
        }
        let Some(location) = self.location(ex) else { return Step::Continue };
        let mut response = Response::status(status);
        response.fields_mut().add("Location", &location);
        Step::Respond(response)
    }

    fn foresee(&self, phase: Phases, ex: &mut Exchange<'_>) -> Foreseen {
        Foreseen::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
