//! Calls to a scripted peer.

use http::Response;

use super::*;
use crate::etcd::proto::{RangeRequest, RangeResponse, ResponseHeader};

/// Response of the peer: status, body chunks and trailers.
#[derive(Default, Clone)]
struct Script {
    status: u16,
    head: &'static [(&'static str, &'static str)],
    pieces: Vec<Vec<u8>>,
    trailers: Option<&'static [(&'static str, &'static str)]>,
}

fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

async fn answer(stream: tokio::io::DuplexStream, script: Script) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let (request, mut respond) = connection.accept().await.unwrap().unwrap();
    assert_eq!(request.uri().path(), "/test/Call");
    assert_eq!(request.headers()["content-type"], "application/grpc");
    assert_eq!(request.headers()["authorization"], "token");
    let mut head = Response::builder().status(script.status).body(()).unwrap();
    *head.headers_mut() = fields(script.head);
    let is_all = script.pieces.is_empty() && script.trailers.is_none();
    let mut body = respond.send_response(head, is_all).unwrap();
    for piece in script.pieces {
        body.send_data(piece.into(), false).unwrap();
    }
    if let Some(trailers) = script.trailers {
        body.send_trailers(fields(trailers)).unwrap();
    }
    while connection.accept().await.is_some() {}
}

async fn ask(script: Script) -> Result<RangeResponse, RpcError> {
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(answer(far, script));
    let mut connection = EtcdConnection::begin(near, "http://etcd.test".into()).await.unwrap();
    connection.authorize("token").unwrap();
    connection.call("/test/Call", &RangeRequest { limit: 7, ..RangeRequest::default() }).await
}

fn message() -> RangeResponse {
    let header = Some(ResponseHeader { cluster_id: 1, member_id: 2, revision: 300 });
    RangeResponse { header, more: true, ..RangeResponse::default() }
}

const GOOD: &[(&str, &str)] = &[("grpc-status", "0")];

#[tokio::test]
async fn an_answer_is_read_however_it_is_cut() {
    let whole = framed(&message()).to_vec();
    for size in 1..=whole.len() {
        let pieces: Vec<Vec<u8>> = whole.chunks(size).map(<[u8]>::to_vec).collect();
        let script = Script { status: 200, pieces, trailers: Some(GOOD), ..Script::default() };
        assert_eq!(ask(script).await.unwrap(), message(), "pieces of {size}");
    }
}

#[tokio::test]
async fn invalid_grpc_responses_are_errors() {
    let whole = framed(&message()).to_vec();
    let twice = [whole.clone(), whole.clone()].concat();
    let cut = whole[..whole.len() - 1].to_vec();
    let compressed = [vec![1], whole[1..].to_vec()].concat();
    let endless = vec![0, 0xff, 0xff, 0xff, 0xff, 1];
    let refusal: &[_] = &[("grpc-status", "14"), ("grpc-message", "etcdserver: no leader")];
    let script =
        |pieces: Vec<Vec<u8>>, trailers| Script { status: 200, pieces, trailers, ..Script::default() };
    for (script, word) in [
        (Script { status: 502, ..Script::default() }, "does not support gRPC"),
        (Script { status: 200, head: refusal, ..Script::default() }, "no leader"),
        (script(vec![], Some(refusal)), "no leader"),
        (script(vec![whole.clone()], Some(refusal)), "no leader"),
        (script(vec![], Some(GOOD)), "no message"),
        (script(vec![twice], Some(GOOD)), "more than one"),
        (script(vec![cut], Some(GOOD)), ""),
        (script(vec![compressed], Some(GOOD)), "compressed"),
        (script(vec![endless], Some(GOOD)), "too large"),
        (script(vec![whole.clone()], Some(&[("grpc-status", "x")])), "no number"),
    ] {
        let error = ask(script).await.unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[tokio::test]
async fn pending_calls_fail_when_the_connection_closes() {
    let (near, far) = tokio::io::duplex(1 << 16);
    // A peer that reads everything and never responds.
    tokio::spawn(async move {
        let mut connection = h2::server::handshake(far).await.unwrap();
        let mut streams = Vec::new();
        while let Some(request) = connection.accept().await {
            streams.push(request);
        }
    });
    let connection = EtcdConnection::begin(near, "http://etcd.test".into()).await.unwrap();
    let mut stream: RpcStream<RangeResponse> = connection.open("/test/Stream").await.unwrap();
    let (waited, ()) = tokio::join!(stream.next(), async { connection.fail("it keeps quiet") });
    assert!(matches!(waited, Err(RpcError::Transport(_))), "{waited:?}");
    assert!(connection.is_ended());
    assert!(connection.open::<RangeResponse>("/test/Stream").await.is_err());
}
