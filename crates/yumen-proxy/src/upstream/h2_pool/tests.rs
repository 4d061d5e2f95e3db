//! Requests that wait for a connection whose task panics.

use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Waker;

use yumen_snapshot::Publisher;
use yumen_snapshot::upstream::{Endpoint, EndpointState};

use super::*;
use crate::fault::FaultKind;
use crate::simulation::net::{Net, Weather};
use crate::simulation::scheduler::Scheduler;
use crate::upstream::dial::EndpointDial;
use crate::worker::tests::worker;

const KEEP: KeepaliveLimits = KeepaliveLimits { size: 1, idle_timeout_ms: 1000, requests: 1000 };

fn key() -> PoolKey {
    let endpoint = Endpoint {
        addr: ([127, 0, 0, 1], 1).into(),
        authority: "x".into(),
        host: "x".into(),
        weight: 1,
        priority: 0,
        state: Arc::new(EndpointState::new()),
        health: None,
        outlier: None,
    };
    PoolKey::new(&endpoint, None)
}

fn now<T>(polled: Poll<T>) -> Option<T> {
    match polled {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn panic_while_connecting_wakes_all_waiters() {
    let weather = Weather { crumbs: 0, again: 0, resets: 0, stalls: 0, room_max: 1 };
    let net = Net::new(Scheduler::new(1, false), weather);
    net.on_connect(|_| Box::pin(async { panic!("a test does this") }));
    let (worker, key) = (worker(Arc::new(Publisher::default())), key());
    let StreamAcquisition::Connect(connecting) = worker.upstream.h2_pool.acquire(key, &KEEP, 0) else {
        panic!("there is one already")
    };
    let StreamAcquisition::AwaitConnect(pending) = worker.upstream.h2_pool.acquire(key, &KEEP, 0) else {
        panic!("nobody makes one")
    };
    let dial = EndpointDial {
        address: ([127, 0, 0, 1], 1).into(),
        opening: vec![],
        tunnel: None,
        handshake: None,
        timeout_ms: 0,
        endpoint: Arc::new(EndpointState::new()),
    };
    connecting.begin(&worker.upstream, dial, KEEP);
    let cx = &mut Context::from_waker(Waker::noop());
    let mut over = pin!(pending.over());
    assert_eq!(now(over.as_mut().poll(cx)), None);
    assert!(catch_unwind(AssertUnwindSafe(|| net.scheduler.poll_one())).is_err());
    assert_eq!(now(over.as_mut().poll(cx)), Some(Err(FaultKind::Connect)));
    assert_eq!(worker.counters.runtime.panics.get(), 1);
    assert!(
        matches!(worker.upstream.h2_pool.acquire(key, &KEEP, 0), StreamAcquisition::Connect(_)),
        "the next one tries again"
    );
    net.close();
}

#[test]
fn panic_of_a_connection_task_ends_its_streams() {
    let (worker, key) = (worker(Arc::new(Publisher::default())), key());
    let cx = &mut Context::from_waker(Waker::noop());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let stream = TransportStream::Tcp(TcpConnection::fresh(listener.accept().unwrap().0));
    let patience = FrameBudget::with_endpoint(1000, PREFACE_BYTES, 0);
    let wire = Http2Transport::new(stream, Inbox::default(), patience, worker.buffers.clone());
    let mut shaking = pin!(client_builder(&worker.settings).handshake(wire.clone()));
    let (sender, library) = now(shaking.as_mut().poll(cx)).expect("it asks nobody").unwrap();
    let connection = H2Connection::new(sender, &KEEP, worker.buffers.backlog.queue(), worker.timers.timer());
    worker.upstream.h2_pool.add(key, connection.clone(), KEEP.size);
    let watched = PanicWatch::new(&worker.counters, None);
    let driver =
        H2ConnectionDriver { connection, library, wire, keep: KEEP, stall_ms: 0, stalled_at: None, watched };
    let StreamAcquisition::Ready(occupied) = worker.upstream.h2_pool.acquire(key, &KEEP, 0) else {
        panic!("there is no place")
    };
    let request = http::Request::get("http://x/").body(()).unwrap();
    let (mut answer, _body) = occupied.send(request, true).unwrap();
    let StreamAcquisition::AwaitSettings(connection) = worker.upstream.h2_pool.acquire(key, &KEEP, 0) else {
        panic!("it has settled")
    };
    let mut settled = pin!(connection.settings_received());
    assert!(settled.as_mut().poll(cx).is_pending() && Pin::new(&mut answer).poll(cx).is_pending());
    let mut task = Box::pin(async move {
        let _driver = driver;
        std::future::poll_fn(|_| -> Poll<()> { panic!("a test does this") }).await;
    });
    assert!(catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx).is_ready())).is_err());
    assert_eq!(now(settled.as_mut().poll(cx)), Some(Err(FaultKind::UpstreamClosed)));
    assert!(now(Pin::new(&mut answer).poll(cx)).expect("it is over").is_err());
    assert_eq!(worker.counters.runtime.panics.get(), 1);
    assert!(
        matches!(worker.upstream.h2_pool.acquire(key, &KEEP, 0), StreamAcquisition::Connect(_)),
        "nobody else is sent there"
    );
}
