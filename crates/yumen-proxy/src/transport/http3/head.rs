//! Reads a request head with its `:protocol`, where h3 refuses values that it does not support (RFC 9220).
//!
//! Must not depend on exchanges.

use std::future::poll_fn;
use std::pin::pin;

use bytes::Bytes;
use h2::ext::Protocol;
use h3::error::{Code, StreamError};
use h3::frame::FrameStreamError;
use h3::proto::frame::Frame;
use h3::quic::{SendStream, StreamErrorIncoming};
use h3::server::{RequestResolver, RequestStream};
use http::Request;
use yumen_http::HeadError;
use yumen_http::field_section::{self, take_protocol};
use yumen_http::http3_frames::Http3FrameTooLong;

use super::quic::{FilteredStream, QuicConnection};
use super::transport::QuicBidiStream;
use crate::runtime::timers::{Timer, until};

/// Reader of the head of a new stream.
pub(crate) type Resolver = RequestResolver<QuicConnection, Bytes>;
/// A stream whose head was read.
pub(crate) type Incoming = RequestStream<FilteredStream<QuicBidiStream>, Bytes>;

/// Reason that a stream did not become a request.
pub(crate) enum HeadReadFailure {
    /// The head timed out. The stream was rejected as not processed.
    Late,
    /// The head was refused, and the client received the response or reset for it.
    Refused(HeadError),
    /// The client canceled the request, or the connection ended.
    Gone,
}

/// Reads a head of at most `size_max` bytes until the timer expires. As with HTTP/2, `:protocol` is stored in
/// the extensions of the request, for any method.
pub(crate) async fn resolved(
    mut resolver: Resolver,
    timer: &Timer,
    size_max: u64,
) -> Result<(Request<()>, Incoming), HeadReadFailure> {
    let reading = pin!(poll_fn(|cx| resolver.frame_stream.poll_next(cx)));
    let Some(mut frame) = until(timer, reading).await else {
        // A stream that is dropped without a reset would end like a complete response.
        SendStream::<Bytes>::reset(&mut resolver.frame_stream, Code::H3_REQUEST_REJECTED.value());
        return Err(HeadReadFailure::Late);
    };
    if let Err(FrameStreamError::Quic(StreamErrorIncoming::Unknown(cause))) = &frame
        && cause.is::<Http3FrameTooLong>()
    {
        // The library sends 431 for a head above its limit, so it receives one.
        frame = Ok(Some(Frame::Headers(larger_than(size_max))));
    }
    let mut requested = None;
    if let Ok(Some(Frame::Headers(section))) = &mut frame
        && let Some((left, protocol)) = take_protocol(section)
    {
        // h3 rejects a head with a protocol that it does not know, so the field is withheld from it (decision
        // 25).
        *section = left.into();
        requested = Some(match protocol {
            field_section::ConnectProtocol::WebSocket => Protocol::from_static("websocket"),
            field_section::ConnectProtocol::Other => Protocol::from_static("unknown"),
        });
    }
    let resolving = resolver.accept_with_frame(frame).map_err(|error| unread(&error))?.resolve();
    // The only wait is for the window of the library's own response to an oversized head.
    let resolved =
        until(timer, pin!(resolving)).await.ok_or(HeadReadFailure::Refused(HeadError::TooLarge))?;
    let (mut request, stream) = resolved.map_err(|error| unread(&error))?;
    if let Some(protocol) = requested {
        request.extensions_mut().insert(protocol);
    }
    Ok((request, stream))
}

/// A substitute for a head that was too long to read: a section that exceeds the library's size limit, so
/// that the library sends its response to oversized heads.
fn larger_than(size_max: u64) -> Bytes {
    // The field line is `:method: GET` from the static table; it counts as 42 bytes (RFC 9204 §3.2.1).
    let lines = usize::try_from(size_max / 42 + 1).unwrap_or(usize::MAX);
    [vec![0; 2], vec![0xd1; lines]].concat().into()
}

/// Maps an error of the library to the reason.
fn unread(error: &StreamError) -> HeadReadFailure {
    match error {
        StreamError::HeaderTooBig { .. } => HeadReadFailure::Refused(HeadError::TooLarge),
        StreamError::StreamError { code, .. } if *code == Code::H3_MESSAGE_ERROR => {
            HeadReadFailure::Refused(HeadError::Malformed("the request head is malformed"))
        }
        StreamError::StreamError { code, .. } if *code == Code::H3_REQUEST_INCOMPLETE => {
            HeadReadFailure::Refused(HeadError::Malformed("the request has no head"))
        }
        _ => HeadReadFailure::Gone,
    }
}
