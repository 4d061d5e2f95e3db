//! `redirect`: redirects to HTTPS, to a configured target, or to the replacement of a pattern.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_http::uri::escape;
use yumen_plugin::{
    DryRunResult, Exchange, LocalResponse, Method, PhaseSet, Plugin, PluginBuildContext, PluginFactory, Step,
};

use crate::pattern::{self, MatchReplacement, PatternSubstitution};
use crate::target_builder::{LiteralEncoding, TargetBuilder};
use crate::text::{TextTemplate, final_status};

/// The settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [{"required": ["uri"]}, {"required": ["regex_uri"]}, {"required": ["http_to_https"]}]))]
pub(crate) struct RedirectSettings {
    /// Status of the redirection; above 999 is 999.
    #[serde(default = "found")]
    #[schemars(range(min = 200))]
    ret_code: u64,
    /// Where to; variables are filled in. Their values are encoded for their place, path or query; a variable that
    /// begins the target may hold a URL. `${$}` is a dollar sign.
    #[schemars(
        length(min = 2),
        regex(pattern = r"(\\\$[0-9a-zA-Z_]+)|\$\{([0-9a-zA-Z_]+)\}|\$([0-9a-zA-Z_]+)|(\$|[^$\\]+)")
    )]
    uri: Option<String>,
    /// A pattern over the decoded path, and the target its match becomes; groups are encoded for their place.
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

enum RedirectTarget {
    /// To HTTPS on one of these ports; without one, to port 443.
    Https(Box<[u16]>),
    Uri(RedirectTemplate<TextTemplate>),
    Path(RedirectTemplate<PatternSubstitution>),
    Unset,
}

/// The source of the location.
struct RedirectTemplate<T> {
    makes: T,
    /// Whether the settings contain a scheme or an authority. Otherwise no request may add one.
    names_where: bool,
    /// Whether the template begins with a variable, whose value may be a URL.
    begins_with_variable: bool,
}

impl<T> RedirectTemplate<T> {
    fn new(written: &str, makes: T) -> RedirectTemplate<T> {
        let first_segment = written.split('/').next().unwrap_or_default();
        RedirectTemplate {
            makes,
            names_where: first_segment.contains(':') || written.starts_with("//"),
            begins_with_variable: written.starts_with('$'),
        }
    }
}

/// The plugin.
pub(crate) struct Redirect {
    status: u16,
    target: RedirectTarget,
    encodes: bool,
    appends_query: bool,
}

impl PluginFactory for Redirect {
    const NAME: &'static str = "redirect";
    const PRIORITY: i32 = 900;
    type Config = RedirectSettings;

    fn build(config: RedirectSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let to_https = config.http_to_https == Some(true);
        if to_https && config.append_query_string {
            let message = "only one of `http_to_https` and `append_query_string` can be configured.";
            return Err(InvalidSettings::new(message));
        }
        let target = match (&config.uri, config.regex_uri.as_deref()) {
            _ if to_https => RedirectTarget::Https(setup.node.tls_ports.as_slice().into()),
            (Some(uri), _) => {
                RedirectTarget::Uri(RedirectTemplate::new(uri, TextTemplate::parse_dotless(uri)))
            }
            (None, Some([regex, by])) => {
                let regex = pattern::compile(regex, "regex_uri")?;
                let makes = PatternSubstitution::new(regex, MatchReplacement::parse(by, "regex_uri")?);
                RedirectTarget::Path(RedirectTemplate::new(by, makes))
            }
            (None, Some(_)) => {
                return Err(InvalidSettings::at("regex_uri", "a pattern and a template are needed"));
            }
            (None, None) => RedirectTarget::Unset,
        };
        let (encodes, appends_query) = (config.encode_uri, config.append_query_string);
        Ok(Redirect { status: final_status(config.ret_code), target, encodes, appends_query })
    }
}

impl Redirect {
    fn location(&self, ex: &Exchange<'_>) -> Result<Option<Vec<u8>>, ClientTextInAuthority> {
        let literals = if self.encodes { LiteralEncoding::Path } else { LiteralEncoding::AsWritten };
        let (mut target, names_where) = match &self.target {
            RedirectTarget::Https(ports) => return Ok(Some(https(ports, ex))),
            RedirectTarget::Uri(uri) => {
                let mut target = TargetBuilder::location(literals);
                if uri.names_where && !uri.begins_with_variable {
                    target = target.noting_client_text();
                }
                uri.makes.fill_target(ex, &mut target);
                (target, uri.names_where)
            }
            RedirectTarget::Path(path) => {
                let mut target = TargetBuilder::new(literals);
                if path.names_where {
                    target = target.noting_client_text();
                }
                let matched = path.makes.first_in_path(&ex.request, ex.budget(), &mut target);
                if ex.decided(matched).is_none() {
                    return Ok(None);
                }
                (target, path.names_where)
            }
            RedirectTarget::Unset => return Ok(None),
        };
        if target.has_client_text_in_authority() {
            return Err(ClientTextInAuthority);
        }
        if self.appends_query {
            target.add_query(ex.request.query().unwrap_or_default());
        }
        let mut location = target.finish();
        if !names_where {
            keep_authority(&mut location);
            if matches!(self.target, RedirectTarget::Path(_)) {
                keep_scheme(&mut location);
            }
        }
        Ok(Some(location))
    }
}

/// The refusal of a location whose host the request would choose.
#[derive(Debug)]
struct ClientTextInAuthority;

/// Prevents a path that begins with client text from being read as an authority.
fn keep_authority(location: &mut Vec<u8>) {
    let slashes = location.iter().take_while(|byte| **byte == b'/').count();
    location.drain(..slashes.saturating_sub(1));
}

/// Prevents a first segment of client text from being read as a scheme. Slashes in a path are merged, so a
/// path contains no URL; a variable may.
fn keep_scheme(location: &mut Vec<u8>) {
    let end = location.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(location.len());
    let rest = location.split_off(end);
    for byte in std::mem::take(location) {
        if byte == b':' { escape(byte, location) } else { location.push(byte) }
    }
    location.extend_from_slice(&rest);
}

fn https(ports: &[u16], ex: &Exchange<'_>) -> Vec<u8> {
    let mut out = b"https://".to_vec();
    out.extend_from_slice(ex.request.host());
    let port = match ports {
        [] => 443,
        [one] => *one,
        many => many[(ex.host.random() % many.len() as u64) as usize],
    };
    if port != 443 && port != 0 {
        out.extend_from_slice(format!(":{port}").as_bytes());
    }
    // The client receives its own text, including a credential that is hidden from the upstream.
    out.extend_from_slice(&ex.request.forwarded_request_uri_for_client());
    out
}

impl Plugin for Redirect {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let mut status = self.status;
        if let RedirectTarget::Https(_) = self.target {
            let told = ex.request.fields.get("X-Forwarded-Proto");
            if told.unwrap_or(ex.client.scheme().as_bytes()) == b"https" {
                return Step::Continue;
            }
            if ex.request.host().is_empty() {
                return Step::Respond(LocalResponse::error_msg(
                    400,
                    "a request without a host cannot be sent to https",
                ));
            }
            status = if matches!(ex.request.method(), Method::Get | Method::Head) { 301 } else { 308 };
        }
        let location = match self.location(ex) {
            Ok(Some(location)) => location,
            Ok(None) => return Step::Continue,
            Err(ClientTextInAuthority) => {
                let message = "the request would change the host of the redirect";
                return Step::Respond(LocalResponse::error_msg(400, message));
            }
        };
        let mut response = LocalResponse::status(status);
        response.fields_mut().add("Location", &location);
        Step::Respond(response)
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
