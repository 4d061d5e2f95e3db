use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use yumen_base::Now;

use super::{
    BatchPolicy, SinkAddress, SinkBatch, SinkChunk, SinkEncoder, SinkFraming, SinkRegistry, SinkReply,
    SinkRequest, SinkResult, SinkSpec, SinkVerdict,
};

struct ListEncoder;

impl SinkEncoder for ListEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::JSON_LIST
    }

    fn requests(&self, _: &SinkBatch<'_>) -> Vec<SinkRequest> {
        Vec::new()
    }
}

fn spec(port: u16) -> SinkSpec {
    SinkSpec {
        plugin: "udp-logger",
        name: "udp logger".to_owned(),
        address: SinkAddress::Udp { host: "sink".to_owned(), port },
        policy: BatchPolicy {
            batch_max_size: 1000,
            inactive_timeout_ms: 5000,
            buffer_duration_ms: 60_000,
            max_retry_count: 0,
            retry_delay_ms: 1000,
            pending_entries_max: 3,
            pending_bytes_max: 100,
        },
        encoder: String::new(),
    }
}

fn chunk(entries: &[&str]) -> SinkChunk {
    let bytes = entries.join(",");
    let mut end = 0;
    let ends = entries.iter().enumerate().map(|(index, entry)| {
        end += entry.len() + usize::from(index > 0);
        end as u32
    });
    SinkChunk { ends: ends.collect(), bytes: Bytes::from(bytes) }
}

fn take(receiver: &mut super::SinkReceiver) -> Poll<Option<String>> {
    let polled = receiver.poll_chunk(&mut Context::from_waker(Waker::noop()));
    polled.map(|chunk| chunk.map(|chunk| String::from_utf8_lossy(&chunk.bytes).into_owned()))
}

#[test]
fn equal_specs_share_a_queue_and_others_do_not() {
    let registry = SinkRegistry::default();
    let first = registry.open(spec(1), Arc::new(ListEncoder));
    let same = registry.open(spec(1), Arc::new(ListEncoder));
    let other = registry.open(spec(2), Arc::new(ListEncoder));
    assert!(Arc::ptr_eq(first.queue(), same.queue()));
    assert!(!Arc::ptr_eq(first.queue(), other.queue()));
    assert_eq!(registry.take_new().len(), 2);
    assert_eq!(registry.take_new().len(), 0);
}

#[test]
fn a_queue_ends_behind_its_last_entry_and_is_opened_anew() {
    let registry = SinkRegistry::default();
    let handle = registry.open(spec(1), Arc::new(ListEncoder));
    let mut receiver = handle.queue().take_receiver().unwrap();
    assert!(handle.queue().take_receiver().is_none());
    assert_eq!(take(&mut receiver), Poll::Pending);
    assert!(handle.push(b"a".to_vec()));
    let former = handle.queue().clone();
    drop(handle);
    assert_eq!(take(&mut receiver), Poll::Ready(Some("a".to_owned())));
    assert_eq!(take(&mut receiver), Poll::Ready(None));
    let next = registry.open(spec(1), Arc::new(ListEncoder));
    assert!(!Arc::ptr_eq(&former, next.queue()));
}

#[test]
fn entries_beyond_a_bound_are_dropped_and_counted() {
    let registry = SinkRegistry::default();
    let handle = registry.open(spec(1), Arc::new(ListEncoder));
    for (entry, expected) in [("a", true), ("b", true), ("c", true), ("d", false)] {
        assert_eq!(handle.push(entry.into()), expected, "{entry}");
    }
    let queue = handle.queue();
    assert_eq!((queue.waiting(), queue.ended(SinkResult::DroppedFull)), ((3, 3), 1));
    queue.settle(3, 3, SinkResult::Sent);
    assert_eq!((queue.waiting(), queue.ended(SinkResult::Sent)), ((0, 0), 3));
    assert!(handle.push(vec![b'x'; 200]), "the bound is checked before an entry is rendered");
    assert!(!handle.push(b"y".to_vec()), "bytes are bounded too");
    assert!(!handle.admit(0) && queue.ended(SinkResult::DroppedFull) == 3);
}

#[test]
fn chunks_split_between_entries() {
    fn check(count: usize, first: &[&str], rest: &[&str]) {
        let mut whole = chunk(&["aa", "b", "cccc"]);
        let taken = whole.split_to(count, 1);
        let of = |chunk: &SinkChunk| -> Vec<String> {
            chunk.entries(1).map(|entry| String::from_utf8_lossy(entry).into_owned()).collect()
        };
        assert_eq!(of(&taken), first, "first {count}");
        assert_eq!(of(&whole), rest, "rest of {count}");
        assert_eq!(taken.bytes, first.join(","));
        assert_eq!(whole.bytes, rest.join(","));
    }
    check(0, &[], &["aa", "b", "cccc"]);
    check(1, &["aa"], &["b", "cccc"]);
    check(2, &["aa", "b"], &["cccc"]);
    check(3, &["aa", "b", "cccc"], &[]);
    check(4, &["aa", "b", "cccc"], &[]);
}

#[test]
fn batches_are_framed_without_copies() {
    fn check(framing: SinkFraming, chunks: &[SinkChunk], expected: &str) {
        let entries = chunks.iter().map(SinkChunk::len).sum();
        let batch = SinkBatch { chunks, entries, now: Now::default() };
        assert_eq!(String::from_utf8(batch.framed(framing).concat()).unwrap(), expected);
    }
    let list = SinkFraming::JSON_LIST;
    check(list, &[chunk(&["1", "2"]), chunk(&["3"])], "[1,2,3]");
    check(list, &[chunk(&["1"])], "[1]");
    check(SinkFraming::PLAIN, &[chunk(&["1"])], "1");
}

#[test]
fn a_refusal_has_the_text_of_the_server_in_one_line() {
    fn check(status: u16, body: &[u8], expected: &str) {
        let reply = SinkReply { status, body: body.to_vec(), ..SinkReply::default() };
        assert_eq!(ListEncoder.verdict(&reply), SinkVerdict::Retry(expected.to_owned()));
    }
    check(500, b"", "server returned status code[500]");
    check(
        404,
        b"Table default.one doesn't exist.\n",
        "server returned status code[404], body: Table default.one doesn't exist.",
    );
    check(
        400,
        b"Cannot parse: a\r\n2026-11-27 ERROR forged\x1b[31m\xff",
        "server returned status code[400], body: Cannot parse: a\\r\\n2026-11-27 ERROR forged\\u{1b}[31m\u{fffd}",
    );
    let long = SinkReply { status: 400, body: vec![b'x'; 9000], ..SinkReply::default() };
    assert_eq!(long.excerpt().len(), 512);
}
