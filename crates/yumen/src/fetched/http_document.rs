//! A document at a URL, fetched without redirects.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{ACCEPT, CACHE_CONTROL, HeaderName, HeaderValue};
use hyper::{HeaderMap, Request, StatusCode};
use rustls::ClientConfig;
use yumen_outbound::TlsClients;
use yumen_plugin::{HttpFetch, SinkTls};
use yumen_snapshot::compile::FetchFailure;

use super::FetchedBody;
use crate::fetch::{self, FetchBounds};

/// Fetches a document. The messages contain no credentials: neither the query of the URL nor fields.
pub(super) async fn fetch(
    fetch: &HttpFetch,
    body_bytes_max: usize,
    tls: &TlsClients,
) -> Result<FetchedBody, FetchFailure> {
    exchange(fetch, body_bytes_max, tls)
        .await
        .map_err(|message| FetchFailure { message: message.into(), is_absent: false })
}

async fn exchange(fetch: &HttpFetch, body_bytes_max: usize, tls: &TlsClients) -> Result<FetchedBody, String> {
    let mut request = Request::get(&fetch.url).body(Full::<Bytes>::default()).map_err(|_| "invalid URL")?;
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    for (name, value) in &fetch.fields {
        let parsed = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
        let (name, mut value) = parsed.ok_or("invalid request field")?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let settings = || SinkTls { verify: fetch.verify, ca_pem: fetch.ca_pem.clone(), ..SinkTls::default() };
    let tls = client_config(tls, &fetch.url, settings)?;
    let limit = Duration::from_millis(fetch.timeout_ms.max(1));
    let bounds = FetchBounds { connect: limit, whole: limit, body_bytes_max };
    let sent = fetch::send_through(request, tls.as_ref(), fetch.proxy.as_ref(), bounds).await;
    let (head, body) = sent.map_err(|error| format!("{error:#}"))?.into_parts();
    if head.status.is_redirection() {
        return Err(format!("answered {}; redirects are not followed", head.status.as_u16()));
    }
    if head.status != StatusCode::OK {
        return Err(format!("answered {}", head.status.as_u16()));
    }
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    Ok(FetchedBody { bytes: body.to_vec(), max_age_s: max_age_s(&head.headers) })
}

/// The TLS settings for a URL; `None` for plain HTTP.
pub(super) fn client_config(
    tls: &TlsClients,
    url: &str,
    settings: impl FnOnce() -> SinkTls,
) -> Result<Option<Arc<ClientConfig>>, String> {
    if !url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
        return Ok(None);
    }
    tls.get(&settings()).map(Some)
}

/// The lifetime by `Cache-Control` (RFC 9111 §5.2.2.1).
fn max_age_s(headers: &HeaderMap) -> Option<u32> {
    let fields = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    fields.flat_map(|field| field.split(',')).find_map(|directive| {
        let (name, value) = directive.trim().split_once('=')?;
        name.eq_ignore_ascii_case("max-age").then(|| value.trim_matches('"').parse().ok())?
    })
}

#[cfg(test)]
mod tests;
