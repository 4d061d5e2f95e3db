//! Attempts release everything that they hold, in every final state.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use yumen_config::Kind as ResourceKind;
use yumen_plugin::{ClientInfo, Exchange};
use yumen_snapshot::{Publisher, TriedEndpoints};

use super::*;
use crate::transport::tcp::TcpConnection;
use crate::worker::Worker;
use crate::worker::tests::{compiler, put, worker};

/// A worker, an upstream with limits, and a connection to its one endpoint.
struct Bench {
    worker: Rc<Worker>,
    upstream: Arc<Upstream>,
    connection: Option<TcpStream>,
    peer: TcpStream,
    /// Sockets that idle are registered with its reactor.
    runtime: Runtime,
}

impl Bench {
    fn new() -> Bench {
        Bench::with_balancer("least_conn")
    }

    fn with_balancer(balancer: &str) -> Bench {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connection = TcpStream::connect(address).unwrap();
        connection.set_nonblocking(true).unwrap();
        let (peer, _) = listener.accept().unwrap();
        let upstream = json!({
            "type": balancer,
            "nodes": { address.to_string(): 1 },
            "limits": { "max_requests": 9, "max_connections": 9 },
        });
        let compiled = compiler().apply(vec![put(ResourceKind::Upstreams, "u", &upstream)], 1);
        let (_, upstream) = compiled.snapshot.upstreams().next().expect("it was compiled");
        let upstream = upstream.clone();
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let worker = worker(Arc::new(Publisher::default()));
        Bench { worker, upstream, connection: Some(connection), peer, runtime }
    }

    fn target(&self) -> EndpointTarget<'_> {
        let protection = self.upstream.protection.as_deref();
        EndpointTarget { protection, ..EndpointTarget::of_upstream(&self.upstream, 0) }
    }

    /// Admits a request and begins its attempt.
    fn begin(&self) -> Attempt<'_, EndpointChosen> {
        let address = ([127, 0, 0, 1], 1).into();
        let client = ClientInfo {
            peer: address,
            local: address,
            tls: None,
            connection_id: 1,
            listener: yumen_plugin::ListenerNumber::STATIC,
            mapped_port: 0,
        };
        let pinned = self.worker.pinned();
        let request = self.worker.take_request();
        let ex = Exchange::new(request, &client, clock::now(), &*self.worker, &pinned.consumers);
        let (mut request_permit, key) = (None, |_| self.target().pool_key());
        let admitted = self
            .worker
            .upstream
            .admit(&self.upstream, &ex, &TriedEndpoints::default(), &mut request_permit, key)
            .unwrap()
            .expect("there is an endpoint");
        Attempt::begin(&self.upstream, admitted.index, admitted.endpoint_permit, request_permit)
    }

    /// Puts the connection into the pool, as another request has left it.
    fn fill_pool(&mut self) {
        let permit = self.upstream.protection.as_ref().unwrap().connect(0).unwrap();
        let _reactor = self.runtime.enter();
        let mut tcp = TcpConnection::fresh(self.connection.take().unwrap());
        tcp.register().unwrap();
        let stream = TransportStream::Tcp(tcp);
        let connection = UpstreamConnection::new(stream, self.target().pool_key(), permit);
        self.worker.upstream.keep(Box::new(connection), &self.upstream.keepalive, clock::now());
    }

    /// Sends a request on the connection in the pool.
    fn send(&self) -> Attempt<'_, RequestSent> {
        let connected = self.begin().take_open(&self.worker.upstream, &self.target());
        let Ok(connected) = connected else { panic!("the pool is empty") };
        assert!(connected.is_reused() && !connected.is_stream());
        let request = RequestText {
            text: b"GET / HTTP/1.1\r\n\r\n",
            is_tls: false,
            authority: "x",
            is_complete: true,
            last_fields: &RefCell::default(),
        };
        let Ok((sent, head_sent)) = connected.send_head(&self.worker.upstream, &request) else {
            panic!("a head of HTTP/1 is not sent by itself")
        };
        assert_eq!(head_sent, HeadSent::InBand);
        sent
    }

    /// Expects these numbers of attempts in flight, admitted requests, open and idle connections.
    fn check(&self, expected: [u32; 4]) {
        let gate = &self.upstream.protection.as_ref().unwrap().gate;
        let active = self.upstream.endpoints[0].state.active.load(Relaxed);
        let idle = self.worker.upstream.pool.borrow().len();
        let counts = [active, gate.requests.load(Relaxed), gate.connections.load(Relaxed), idle as u32];
        assert_eq!(counts, expected);
    }

    /// Whether the connection is closed, as its peer sees it.
    fn is_closed(&self) -> bool {
        self.peer.set_nonblocking(true).unwrap();
        matches!((&self.peer).read(&mut [0]), Ok(0))
    }
}

#[test]
fn a_dropped_attempt_returns_everything() {
    let mut bench = Bench::new();
    let attempt = bench.begin();
    bench.check([1, 1, 1, 0]);
    drop(attempt);
    bench.check([0; 4]);
    bench.fill_pool();
    bench.check([0, 0, 1, 1]);
    let sent = bench.send();
    bench.check([1, 1, 1, 0]);
    drop(sent);
    bench.check([0; 4]);
    assert!(bench.is_closed());
}

#[test]
fn a_closed_connection_leaves_its_permit_to_the_next() {
    let mut bench = Bench::new();
    bench.fill_pool();
    let unanswered = bench.send().give_up(&bench.worker.upstream, FaultKind::UpstreamClosed.into());
    bench.check([1, 1, 1, 0]);
    let failed = unanswered.fail();
    bench.check([0, 1, 0, 0]);
    drop(failed);
    bench.check([0; 4]);
    assert!(bench.is_closed());
}

#[test]
fn a_failed_attempt_has_a_response_time_only_after_a_timeout() {
    for (kind, is_recorded) in [
        (FaultKind::UpstreamClosed, false),
        (FaultKind::ConnectTimeout, true),
        (FaultKind::ReadTimeout, true),
    ] {
        let mut bench = Bench::with_balancer("ewma");
        bench.fill_pool();
        drop(bench.send().give_up(&bench.worker.upstream, kind.into()).fail());
        let at_us = bench.upstream.endpoints[0].state.ewma_at_us.load(Relaxed);
        assert_eq!(at_us != 0, is_recorded, "{kind:?}");
        bench.check([0; 4]);
    }
}

#[test]
fn the_life_of_a_tunnel_is_no_response_time() {
    for is_upgrade in [false, true] {
        let mut bench = Bench::with_balancer("ewma");
        bench.fill_pool();
        let finished = bench.send().answered(is_upgrade).finish(clock::now());
        let at_us = bench.upstream.endpoints[0].state.ewma_at_us.load(Relaxed);
        assert_eq!(at_us == 0, is_upgrade);
        finished.close(&bench.worker.upstream);
        bench.check([0; 4]);
    }
}

#[test]
fn a_finished_attempt_keeps_or_closes_its_connection() {
    for keeps in [true, false] {
        let mut bench = Bench::new();
        bench.fill_pool();
        let client = &bench.worker.upstream;
        let finished = bench.send().answered(false).finish(clock::now());
        bench.check([0, 1, 1, 0]);
        assert!(finished.is_limited());
        if keeps {
            finished.keep(client, &bench.upstream.keepalive, clock::now());
            bench.check([0, 0, 1, 1]);
        } else {
            finished.close(client);
            bench.check([0; 4]);
        }
        assert_eq!(bench.is_closed(), !keeps);
    }
}
