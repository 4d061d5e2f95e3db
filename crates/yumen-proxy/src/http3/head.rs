//! A request's head, with the protocol it asks for, which h3 refuses where it does not know it (RFC 9220).
//!
//! Knows no exchange.

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
use crate::timers::{Timer, until};

/// What reads a head from a stream that has just begun.
pub(crate) type Resolver = RequestResolver<QuicConnection, Bytes>;
/// A stream behind its head.
pub(crate) type Incoming = RequestStream<FilteredStream<QuicBidiStream>, Bytes>;

/// Why a stream did not become a request.
pub(crate) enum HeadReadFailure {
    /// Its head was not whole in time. The client is told that it was not looked at.
    Late,
    /// Its head was refused, and the client was told so.
    Refused(HeadError),
    /// The client took it back, or its connection ended, whoever ended that.
    Gone,
}

/// Reads the head, of this size at most, until the timer's deadline. A protocol stands in the request's extensions as
/// those of HTTP/2 have it, whatever the method.
pub(crate) async fn resolved(
    mut resolver: Resolver,
    timer: &Timer,
    size_max: u64,
) -> Result<(Request<()>, Incoming), HeadReadFailure> {
    let reading = pin!(poll_fn(|cx| resolver.frame_stream.poll_next(cx)));
    let Some(mut frame) = until(timer, reading).await else {
        // Without this, dropping it would end it as an answer does.
        SendStream::<Bytes>::reset(&mut resolver.frame_stream, Code::H3_REQUEST_REJECTED.value());
        return Err(HeadReadFailure::Late);
    };
    if let Err(FrameStreamError::Quic(StreamErrorIncoming::Unknown(cause))) = &frame
        && cause.is::<Http3FrameTooLong>()
    {
        frame = Ok(Some(Frame::Headers(larger_than(size_max))));
    }
    let mut asked = None;
    if let Ok(Some(Frame::Headers(section))) = &mut frame
        && let Some((left, protocol)) = take_protocol(section)
    {
        *section = left.into();
        asked = Some(match protocol {
            field_section::ConnectProtocol::WebSocket => Protocol::from_static("websocket"),
            field_section::ConnectProtocol::Other => Protocol::from_static("unknown"),
        });
    }
    let resolving = resolver.accept_with_frame(frame).map_err(|error| unread(&error))?.resolve();
    // All that it waits for is room for its own answer to a head that is too large.
    let resolved =
        until(timer, pin!(resolving)).await.ok_or(HeadReadFailure::Refused(HeadError::TooLarge))?;
    let (mut request, stream) = resolved.map_err(|error| unread(&error))?;
    if let Some(protocol) = asked {
        request.extensions_mut().insert(protocol);
    }
    Ok((request, stream))
}

/// Stands in for a head that was not taken because of its length: a section that the library refuses for its size,
/// with the answer that it has for that.
fn larger_than(size_max: u64) -> Bytes {
    // `:method: GET` by the static table, which counts as 42 bytes (RFC 9204 §3.2.1).
    let lines = usize::try_from(size_max / 42 + 1).unwrap_or(usize::MAX);
    [vec![0; 2], vec![0xd1; lines]].concat().into()
}

/// What the library made of a head.
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
