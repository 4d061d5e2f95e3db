//! Data that a filter holds back while tokio's task budget is spent, and the bound of a surplus.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::task::Waker;

use tokio::task::{LocalSet, coop, yield_now};
use yumen_http::Framing;
use yumen_plugin::BodyChunk;

use super::*;
use crate::simulation::net::{Net, Weather};
use crate::simulation::scheduler::Scheduler;
use crate::transport::tcp::TcpConnection;

fn net() -> Rc<Net> {
    let weather = Weather { crumbs: 0, again: 0, resets: 0, stalls: 0, room_max: 1 };
    Net::new(Scheduler::new(1, false), weather)
}

#[test]
fn a_surplus_is_read_no_further_than_its_bound_in_however_many_reads() {
    let net = net();
    let (source, endpoint) = net.pair("gateway", "endpoint");
    let mut source = TransportStream::Tcp(TcpConnection::memory(source));
    let (buffers, mut inbox) = (Buffers::default(), Inbox::default());
    let mut cut = Transfer::new(Framing::Close, BodyEncoding::Known, Vec::new(), 0);
    let mut surplus = cut.take_surplus(10_000);
    let cx = &mut Context::from_waker(Waker::noop());
    let mut sent = 0;
    loop {
        sent += endpoint.try_write(&[IoSlice::new(&[0; 1000])]).unwrap();
        while net.deliverable_count() > 0 {
            net.deliver_one();
        }
        let source = BodySource { stream: &mut source, inbox: &mut inbox };
        match surplus.poll_surplus(cx, &buffers, source) {
            Poll::Pending => assert!(sent <= 10_000),
            Poll::Ready(read) => {
                break assert!(matches!(read, Err(TransferFailure::TooLarge)) && sent == 11_000);
            }
        }
    }
    net.close();
}

/// Like an HTTP/2 stream, the source takes no budget and therefore wakes no task.
#[tokio::test]
async fn buffered_output_is_sent_without_task_budget() {
    let net = net();
    let ((source, _endpoint), (sink, _client)) =
        (net.pair("gateway", "endpoint"), net.pair("gateway", "client"));
    let pauses = Rc::new(RefCell::new(Vec::new()));
    let pause_log = pauses.clone();
    let local = LocalSet::new();
    local.spawn_local(async move {
        let (mut source, mut sink) = (
            TransportStream::Tcp(TcpConnection::memory(source)),
            TransportStream::Tcp(TcpConnection::memory(sink)),
        );
        let (buffers, mut inbox) = (Buffers::default(), Inbox::default());
        let mut transfer = Transfer::new(Framing::Close, BodyEncoding::Known, Vec::new(), 0);
        transfer.filter = FilterStage::Fed;
        let mut edit = |chunk: BodyChunk| {
            pause_log.borrow_mut().push(chunk.pause);
            BodyChunk { data: b"held".to_vec(), ..BodyChunk::default() }
        };
        let mut is_spent = false;
        let polled = poll_fn(|cx| {
            // A poll of an exhausted budget wakes the task, which must not happen here.
            while !is_spent && coop::has_budget_remaining() {
                assert!(coop::poll_proceed(cx).map(|unit| unit.made_progress()).is_ready());
            }
            is_spent = true;
            let source = BodySource { stream: &mut source, inbox: &mut inbox };
            transfer.poll(cx, &buffers, source, &mut sink, &mut Some(&mut edit))
        });
        assert!(polled.await.is_err(), "the source has no end");
    });
    local
        .run_until(async {
            for _ in 0..10 {
                yield_now().await;
            }
        })
        .await;
    assert_eq!(*pauses.borrow(), [true]);
    net.close();
}
