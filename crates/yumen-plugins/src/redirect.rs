//! `redirect`: redirects clients to HTTPS, to a fixed target, or to a rewritten path.

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

/// Settings of `redirect`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [{"required": ["uri"]}, {"required": ["regex_uri"]}, {"required": ["http_to_https"]}]))]
pub(crate) struct RedirectSettings {
    /// Status of the redirection; a number above 999 counts as 999.
    #[serde(default = "found")]
    #[schemars(range(min = 200))]
    ret_code: u64,
    /// Target; may contain variables, whose values are encoded for their position in path or query. A
    /// variable at the beginning of the target may contain a URL. `${$}` is a dollar sign.
    #[schemars(
        length(min = 2),
        regex(pattern = r"(\\\$[0-9a-zA-Z_]+)|\$\{([0-9a-zA-Z_]+)\}|\$([0-9a-zA-Z_]+)|(\$|[^$\\]+)")
    )]
    uri: Option<String>,
    /// Pattern over the decoded path, and the target for its match; groups are encoded for their position.
    #[schemars(length(min = 2, max = 2))]
    regex_uri: Option<Vec<String>>,
    /// Redirect http requests to https, with 301 for GET and HEAD and 308 for other methods.
    http_to_https: Option<bool>,
    /// Whether the path of the target is percent-encoded.
    #[serde(default)]
    encode_uri: bool,
    /// Whether the query of the request is appended.
    #[serde(default)]
    append_query_string: bool,
}

fn found() -> u64 {
    302
}

enum RedirectTarget {
    /// To HTTPS on one of these ports; an empty list means 443.
    Https(Box<[u16]>),
    Uri(RedirectTemplate<TextTemplate>),
    Path(RedirectTemplate<PatternSubstitution>),
    Unset,
}

/// A template for the location.
struct RedirectTemplate<T> {
    makes: T,
    /// Whether the template contains a scheme or an authority. Otherwise client text must not introduce one.
    names_where: bool,
    /// Whether the template begins with a variable, which may contain a URL.
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

/// The compiled settings.
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
            // `http_to_https: false` alone satisfies the schema.
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

/// Client text would choose the host of the location.
#[derive(Debug)]
struct ClientTextInAuthority;

/// Removes leading slashes that would make a path begin with an authority.
fn keep_authority(location: &mut Vec<u8>) {
    let slashes = location.iter().take_while(|byte| **byte == b'/').count();
    location.drain(..slashes.saturating_sub(1));
}

/// Escapes a colon in the first segment, so that client text cannot form a scheme. Only for a path, which
/// contains no URL because its slashes are merged; a variable at the beginning of a target may contain one.
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
        // As in APISIX, one of several ports at random.
        many => many[(ex.host.random() % many.len() as u64) as usize],
    };
    if port != 443 && port != 0 {
        out.extend_from_slice(format!(":{port}").as_bytes());
    }
    // The target as the client sent it, with any credential that is hidden from the upstream.
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
            // Fields of untrusted clients are removed before, so this one comes from a trusted peer or a
            // plugin.
            let proto = ex.request.fields.get("X-Forwarded-Proto");
            if proto.unwrap_or(ex.client.scheme().as_bytes()) == b"https" {
                return Step::Continue;
            }
            if ex.request.host().is_empty() {
                return Step::Respond(LocalResponse::error_msg(
                    400,
                    "a request without a host cannot be sent to https",
                ));
            }
            // 301 lets clients change other methods to GET (RFC 9110 §15.4.2); 308 does not.
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

    fn responds_always_in(&self) -> Option<PhaseSet> {
        matches!(self.target, RedirectTarget::Uri(_)).then_some(PhaseSet::REWRITE)
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
