//! A request's head, with the protocol it asks for, which h3 refuses where it does not know it (RFC 9220).
//!
//! Knows no exchange.

use std::future::poll_fn;

use bytes::Bytes;
use h2::ext::Protocol;
use h3::error::StreamError;
use h3::proto::frame::Frame;
use h3::server::{RequestResolver, RequestStream};
use http::Request;
use yumen_http::field_section::{self, take_protocol};

use super::quic::{Framed, Quic};

/// What reads a head from a stream that has just begun.
pub(crate) type Resolver = RequestResolver<Quic<h3_quinn::Connection>, Bytes>;
/// A stream behind its head.
pub(crate) type Incoming = RequestStream<Framed<h3_quinn::BidiStream<Bytes>>, Bytes>;

/// Reads the head. A protocol stands in the request's extensions as those of HTTP/2 have it, whatever the method.
pub(crate) async fn resolved(mut resolver: Resolver) -> Result<(Request<()>, Incoming), StreamError> {
    let mut frame = poll_fn(|cx| resolver.frame_stream.poll_next(cx)).await;
    let mut asked = None;
    if let Ok(Some(Frame::Headers(section))) = &mut frame
        && let Some((left, protocol)) = take_protocol(section)
    {
        *section = left.into();
        asked = Some(match protocol {
            field_section::Protocol::WebSocket => Protocol::from_static("websocket"),
            field_section::Protocol::Other => Protocol::from_static("unknown"),
        });
    }
    let (mut request, stream) = resolver.accept_with_frame(frame)?.resolve().await?;
    if let Some(protocol) = asked {
        request.extensions_mut().insert(protocol);
    }
    Ok((request, stream))
}
