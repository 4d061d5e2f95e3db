//! Redirections by the rules of the Gateway API.

use yumen_config::InvalidSettings;
use yumen_config::resource::{RedirectSpec, RedirectWhenSpec};
use yumen_http::uri::escape;
use yumen_plugin::{Exchange, LocalResponse, VarTemplate};

use crate::rewrite::{PathEdit, PathSource, append_query, query_of};

/// A compiled redirection.
#[derive(Debug, Clone)]
pub(crate) struct RedirectAction {
    status: u16,
    scheme: Option<Box<str>>,
    host: Option<Box<str>>,
    port: Option<u16>,
    path: Option<PathEdit>,
    /// The whole location, in place of its parts.
    url: Option<VarTemplate>,
    when: Option<RedirectWhenSpec>,
    is_relative: bool,
    keeps_query: bool,
}

/// The default port of a scheme (RFC 9110 §4.2).
fn default_port(scheme: &str) -> u16 {
    if scheme == "https" { 443 } else { 80 }
}

impl RedirectAction {
    pub(crate) fn build(written: &RedirectSpec) -> Result<RedirectAction, InvalidSettings> {
        let path = written.path.as_ref().map(PathEdit::build).transpose();
        Ok(RedirectAction {
            status: written.status,
            scheme: written.scheme.as_deref().map(Box::from),
            host: written.host.as_deref().map(Box::from),
            port: written.port,
            path: path.map_err(|invalid| invalid.under("redirect"))?,
            url: written.url.as_deref().map(VarTemplate::parse),
            when: written.when.clone(),
            is_relative: written.relative,
            keeps_query: written.keep_query,
        })
    }

    /// Whether requests may pass.
    pub(crate) fn is_conditional(&self) -> bool {
        self.when.is_some()
    }

    /// The response to the request of an exchange; `None` if it is not redirected.
    pub(crate) fn answer(&self, ex: &Exchange<'_>) -> Option<LocalResponse> {
        self.when.as_ref().is_none_or(|when| holds(when, ex)).then(|| self.respond(ex))
    }

    fn respond(&self, ex: &Exchange<'_>) -> LocalResponse {
        let location = match &self.url {
            Some(url) => {
                let mut location = Vec::new();
                url.render(ex, &mut location);
                encoded(&location)
            }
            None => {
                let target = match self.target(ex) {
                    Ok(target) => target,
                    Err(refused) => return refused.response(),
                };
                let mut location = if self.is_relative { Vec::new() } else { self.authority(ex) };
                location.extend_from_slice(&target);
                location
            }
        };
        let mut response = LocalResponse::status(self.status);
        response.fields_mut().add("Location", &location);
        response
    }

    /// Scheme, host and port of the location; empty if the request names no host.
    fn authority(&self, ex: &Exchange<'_>) -> Vec<u8> {
        let host = self.host.as_deref().map_or(ex.request.host(), str::as_bytes);
        if host.is_empty() {
            // A relative location keeps host and port (RFC 9110 §10.2.2).
            return Vec::new();
        }
        let received = ex.client.scheme();
        let scheme = self.scheme.as_deref().unwrap_or(client_scheme(ex));
        let port = match (self.port, &self.scheme) {
            (Some(port), _) => port,
            // The port of the listener belongs to its own scheme.
            (None, None) if scheme == received => listener_port(ex),
            (None, _) => default_port(scheme),
        };
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(scheme.as_bytes());
        out.extend_from_slice(b"://");
        out.extend_from_slice(host);
        if port != default_port(scheme) {
            out.extend_from_slice(format!(":{port}").as_bytes());
        }
        out
    }

    /// Path and query of the location.
    fn target(&self, ex: &Exchange<'_>) -> Result<Vec<u8>, crate::RewriteRefused> {
        let source = PathSource::of_client(&ex.request);
        let edited = self.path.as_ref().map(|edit| edit.edited(source, ex)).transpose()?.flatten();
        let mut target = encoded(edited.as_deref().unwrap_or(ex.request.raw_path()));
        // Beside an empty authority, two slashes would begin another one (RFC 3986 §4.2).
        let slashes = target.iter().take_while(|byte| **byte == b'/').count();
        target.drain(..slashes.saturating_sub(1));
        if self.keeps_query {
            // The query as the client sent it, with any credential that is hidden from the upstream.
            append_query(&mut target, query_of(ex.request.real_request_uri()));
        }
        Ok(target)
    }
}

/// The scheme of the client's request, as a trusted proxy forwarded it.
pub(crate) fn client_scheme(ex: &Exchange<'_>) -> &'static str {
    // Fields of untrusted clients are removed before, so this one comes from a trusted peer.
    match ex.request.fields.get("X-Forwarded-Proto") {
        Some(b"https") => "https",
        Some(b"http") => "http",
        _ => ex.client.scheme(),
    }
}

/// Whether a request fulfils the conditions of a redirection.
fn holds(when: &RedirectWhenSpec, ex: &Exchange<'_>) -> bool {
    let path = ex.request.routed_path();
    let is_at = |text: &String| path == text.as_bytes();
    let begins = |text: &String| path.starts_with(text.as_bytes());
    when.scheme.as_deref().is_none_or(|scheme| scheme == client_scheme(ex))
        && when.paths.as_ref().is_none_or(|paths| paths.iter().any(is_at))
        && !when.exempt_paths.iter().flatten().any(begins)
}

/// The port of the listener.
fn listener_port(ex: &Exchange<'_>) -> u16 {
    ex.client.connection.dialed_port()
}

/// A path without the octets that a URL excludes (RFC 3986 §3.3).
fn encoded(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for &byte in path {
        match byte {
            0..=b' ' | 0x7f.. | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => {
                escape(byte, &mut out);
            }
            byte => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests;
