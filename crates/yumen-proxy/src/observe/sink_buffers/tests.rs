use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use yumen_plugin::sink::SinkReceiver;
use yumen_plugin::{
    BatchPolicy, SinkAddress, SinkBatch, SinkEncoder, SinkFraming, SinkHandle, SinkRegistry, SinkRequest,
    SinkSpec,
};

use super::SinkBuffers;

struct Lines;

impl SinkEncoder for Lines {
    fn framing(&self) -> SinkFraming {
        SinkFraming::LINES
    }

    fn requests(&self, _: &SinkBatch<'_>) -> Vec<SinkRequest> {
        Vec::new()
    }
}

fn sink(registry: &SinkRegistry, batch_max_size: u32) -> (SinkHandle, SinkReceiver) {
    let policy = BatchPolicy {
        batch_max_size,
        inactive_timeout_ms: 5000,
        buffer_duration_ms: 60_000,
        max_retry_count: 0,
        retry_delay_ms: 1000,
        pending_entries_max: 100,
        pending_bytes_max: 1 << 20,
    };
    let address = SinkAddress::Udp { host: "sink".into(), port: 1 };
    let spec =
        SinkSpec { plugin: "udp-logger", name: "udp logger".into(), address, policy, encoder: String::new() };
    let handle = registry.open(spec, Arc::new(Lines));
    let receiver = handle.queue().take_receiver().unwrap();
    (handle, receiver)
}

fn next(receiver: &mut SinkReceiver) -> Option<String> {
    match receiver.poll_chunk(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(chunk)) => Some(String::from_utf8(chunk.bytes.to_vec()).unwrap()),
        _ => None,
    }
}

#[test]
fn entries_wait_for_the_flush_and_are_separated() {
    let (registry, buffers) = (SinkRegistry::default(), SinkBuffers::default());
    let (handle, mut receiver) = sink(&registry, 1000);
    let mut due = Vec::new();
    for text in ["a", "", "b"] {
        due.push(buffers.append(&handle, &mut |out| out.extend_from_slice(text.as_bytes())));
    }
    assert_eq!(due, [true, false, false], "one flush is scheduled");
    assert_eq!(next(&mut receiver), None);
    buffers.flush();
    assert_eq!(next(&mut receiver).as_deref(), Some("a\nb"));
    assert!(buffers.append(&handle, &mut |out| out.push(b'c')), "the next entry schedules a flush again");
    drop(handle);
    buffers.flush();
    assert_eq!(next(&mut receiver).as_deref(), Some("c"));
    assert!(receiver.queue.is_closed(), "the buffers hold no handle behind a flush");
}

#[test]
fn full_chunks_and_single_entries_are_handed_over_at_once() {
    let (registry, buffers) = (SinkRegistry::default(), SinkBuffers::default());
    let (handle, mut receiver) = sink(&registry, 1000);
    buffers.append(&handle, &mut |out| out.extend_from_slice(&[b'x'; 16 * 1024]));
    assert_eq!(next(&mut receiver).map(|text| text.len()), Some(16 * 1024));
    for _ in 0..64 {
        buffers.append(&handle, &mut |out| out.push(b'y'));
    }
    assert_eq!(next(&mut receiver).map(|text| text.len()), Some(127));
    let (single, mut receiver) = sink(&registry, 1);
    assert!(!buffers.append(&single, &mut |out| out.push(b'z')));
    assert_eq!(next(&mut receiver).as_deref(), Some("z"));
}

#[test]
fn entries_beyond_the_bound_are_not_rendered() {
    let (registry, buffers) = (SinkRegistry::default(), SinkBuffers::default());
    let (handle, _receiver) = sink(&registry, 1000);
    let mut rendered = 0;
    for _ in 0..150 {
        buffers.append(&handle, &mut |out| {
            rendered += 1;
            out.push(b'x');
        });
    }
    assert_eq!(rendered, 100);
    assert_eq!(handle.queue().ended(yumen_plugin::sink::SinkResult::DroppedFull), 50);
}
