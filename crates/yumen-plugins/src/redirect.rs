//! `redirect`: sends clients elsewhere: to HTTPS, to a fixed target, or to what a pattern makes of theirs.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::Invalid;
use yumen_http::uri::encode_path;
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
    Uri(Text),
    Path(Substitution),
    Nowhere,
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
            (Some(uri), _) if config.encode_uri => Target::Uri(Text::parse_dotless(&decoded(uri))),
            (Some(uri), _) => Target::Uri(Text::parse_dotless(uri)),
            (None, Some([regex, by])) => {
                let regex = pattern::compile(regex, "regex_uri")?;
                Target::Path(Substitution::new(regex, Replacement::parse(by, "regex_uri")?))
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
        match &self.target {
            Target::Https(ports) => https(ports, ex, &mut location),
            Target::Uri(uri) => uri.render(ex, &mut location),
            Target::Path(substitution) => location = substitution.first(ex.request.path())?.0,
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
