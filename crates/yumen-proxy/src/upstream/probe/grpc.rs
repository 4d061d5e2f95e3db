//! Probes by the gRPC health checking protocol, `grpc.health.v1.Health/Check`.
//!
//! Encodes and decodes only the two messages of that call.

use bytes::{Buf, Bytes};
use h2::RecvStream;
use http::{HeaderMap, Request};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::upstream::health::HealthObservation;

/// The longest response of a health service, in bytes.
const ANSWER_BYTES_MAX: usize = 4096;

/// `ServingStatus.SERVING`.
const SERVING: u64 = 1;

/// A prepared call.
#[derive(Debug)]
pub(super) struct HealthCall {
    uri: String,
    message: Bytes,
}

impl HealthCall {
    pub(super) fn new(authority: &str, service: &str, tls: bool) -> HealthCall {
        let scheme = if tls { "https" } else { "http" };
        let uri = format!("{scheme}://{authority}/grpc.health.v1.Health/Check");
        HealthCall { uri, message: request(service).into() }
    }

    /// Makes the call on a new connection. The status is 200 for SERVING and 503 otherwise.
    pub(super) async fn make(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> HealthObservation {
        let Ok((mut sender, connection)) = h2::client::handshake(stream).await else {
            return HealthObservation::TcpFailure;
        };
        let request = Request::post(&self.uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("user-agent", "yumen-healthcheck")
            .body(());
        let Ok(request) = request else { return HealthObservation::Malformed };
        let call = async {
            std::future::poll_fn(|cx| sender.poll_ready(cx)).await?;
            let (answer, mut body) = sender.send_request(request, false)?;
            body.send_data(self.message.clone(), true)?;
            read(answer.await?).await
        };
        // `biased`: the endpoint may close right after its response, which still counts.
        tokio::select! {
            biased;
            reply = call => reply.map_or(HealthObservation::TcpFailure, |serves| {
                HealthObservation::Status(if serves { 200 } else { 503 })
            }),
            _ = connection => HealthObservation::TcpFailure,
        }
    }
}

/// Whether a response reports SERVING.
async fn read(answer: http::Response<RecvStream>) -> Result<bool, h2::Error> {
    let (head, mut body) = answer.into_parts();
    let mut message = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        // Without released capacity, the endpoint would stop sending (RFC 9113 §5.2).
        body.flow_control().release_capacity(data.len())?;
        message.extend_from_slice(&data);
        if message.len() > ANSWER_BYTES_MAX {
            return Ok(false);
        }
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    // A response without a message carries its status in the head.
    let is_ok = |fields: &HeaderMap| fields.get("grpc-status").is_some_and(|status| status == "0");
    let succeeded = head.status == 200 && (is_ok(&trailers) || is_ok(&head.headers));
    Ok(succeeded && status(&message) == Some(SERVING))
}

/// `HealthCheckRequest` in its gRPC frame: field 1 is the service name.
fn request(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(length as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let mut frame = vec![0];
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(&message);
    frame
}

/// The status of a `HealthCheckResponse` in its gRPC frame: field 1, 0 if absent.
fn status(mut frame: &[u8]) -> Option<u64> {
    // The call offers no compression, so a compressed message is malformed.
    if frame.try_get_u8().ok()? != 0 || frame.try_get_u32().ok()? as usize != frame.len() {
        return None;
    }
    let mut status = 0;
    while frame.has_remaining() {
        let (key, value) = (varint(&mut frame)?, varint(&mut frame)?);
        match key {
            // Field 1 is a varint. Unknown varint fields are skipped; unknown fields of other types are
            // rejected.
            0x08 => status = value,
            key if key & 7 == 0 => {}
            _ => return None,
        }
    }
    Some(status)
}

fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = from.try_get_u8().ok()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests;
