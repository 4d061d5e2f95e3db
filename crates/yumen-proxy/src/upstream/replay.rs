//! The replay buffer of a request: the part of its body that was read, kept for another attempt.
//!
//! `forward` decides whether a request is buffered.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

use yumen_http::Framing;
use yumen_plugin::{BodyChunk, Exchange};
use yumen_snapshot::{StatusRetry, Upstream};

use crate::copy::transfer::{BodySource, Transfer, TransferFailure};
use crate::grpc;
use crate::runtime::buffer::Buffers;
use crate::transport::body::BodyDecoder;
use crate::transport::stream::TransportStream;

/// The longest buffered body, in bytes. Messages of unary calls are seldom longer, and a stream of messages
/// may be endless.
const CALL_BYTES_MAX: usize = 64 * 1024;

/// The most bytes that a worker buffers for all its calls: 256 of the longest, or some ten thousand of usual
/// length. With an unresponsive service, every stream of every connection would hold a buffer.
const WORKER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The replay buffer of a request body, until the response head arrives.
pub(crate) enum RequestReplay {
    /// There is no buffer: only a body that is untouched in the inbox can be repeated.
    Off,
    /// The body is to be buffered, and none of it was sent yet.
    Wanted,
    /// All that was read of the body. The transfer holds the rest.
    Kept(Box<ReplayBuffer>),
    /// The body exceeded a limit, so the request cannot be repeated.
    TooMuch,
}

pub(crate) struct ReplayBuffer {
    data: Vec<u8>,
    room: ReplayShare,
}

/// The buffered bytes of all calls of a worker.
#[derive(Default)]
pub(crate) struct ReplayBudget(Cell<usize>);

/// The part of the budget that one call holds; released on drop.
struct ReplayShare {
    all: Rc<ReplayBudget>,
    bytes: usize,
}

impl ReplayShare {
    /// Grows the share to `bytes` bytes; false if that exceeds the budget.
    fn grow_to(&mut self, bytes: usize) -> bool {
        let total = self.all.0.get() - self.bytes + bytes.max(self.bytes);
        if total > WORKER_BYTES_MAX {
            return false;
        }
        self.all.0.set(total);
        self.bytes = bytes.max(self.bytes);
        true
    }
}

impl Drop for ReplayShare {
    fn drop(&mut self) {
        self.all.0.set(self.all.0.get() - self.bytes);
    }
}

impl ReplayBuffer {
    fn nothing(all: &Rc<ReplayBudget>) -> Box<ReplayBuffer> {
        let room = ReplayShare { all: all.clone(), bytes: 0 };
        Box::new(ReplayBuffer { data: Vec::new(), room })
    }

    /// Appends data; false if that exceeds a limit.
    fn add(&mut self, data: &[u8]) -> bool {
        let (length, before) = (self.data.len() + data.len(), self.data.capacity());
        if length > CALL_BYTES_MAX {
            return false;
        }
        // Doubles as `Vec` does, but never exceeds the limit.
        let capacity = if length > before { (2 * before).clamp(length, CALL_BYTES_MAX) } else { before };
        if !self.room.grow_to(capacity) {
            return false;
        }
        self.data.reserve_exact(capacity - self.data.len());
        self.data.extend_from_slice(data);
        true
    }
}

impl RequestReplay {
    /// Buffers requests of routes that configure retries, and gRPC calls to upstreams that configure statuses
    /// for them.
    #[inline]
    pub(crate) fn of(ex: &Exchange<'_>, upstream: &Upstream, retry: Option<&StatusRetry>) -> RequestReplay {
        if upstream.retry.grpc_statuses.is_empty() && retry.is_none() {
            return RequestReplay::Off;
        }
        RequestReplay::of_request(ex, retry)
    }

    #[cold]
    fn of_request(ex: &Exchange<'_>, retry: Option<&StatusRetry>) -> RequestReplay {
        let is_to_be_read = ex.body.buffered.is_none() && ex.request.framing != Framing::None;
        let is_retried = retry.is_some_and(|retry| retry.attempts > 0) || grpc::is_grpc(&ex.request);
        if is_to_be_read && is_retried { RequestReplay::Wanted } else { RequestReplay::Off }
    }

    /// Starts an attempt. Returns the decoder state behind the buffer, if an earlier attempt has begun the
    /// body.
    #[cold]
    pub(crate) fn begin(&mut self, upload: &mut Transfer, all: &Rc<ReplayBudget>) -> Option<BodyDecoder> {
        match self {
            RequestReplay::Kept(_) => return Some(upload.take_decoder()),
            RequestReplay::Wanted => *self = RequestReplay::Kept(ReplayBuffer::nothing(all)),
            RequestReplay::Off | RequestReplay::TooMuch => {}
        }
        None
    }

    /// Sends the buffer, and then the rest of the body.
    #[cold]
    pub(crate) fn send_again(&self, upload: &mut Transfer, rest: BodyDecoder) {
        let RequestReplay::Kept(buffer) = self else { return };
        upload.resume(&buffer.data, rest);
    }

    /// Like [`Transfer::poll`], and buffers the data that it reads.
    #[cold]
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &Buffers,
        source: BodySource<'_>,
        sink: &mut TransportStream,
        upload: &mut Transfer,
    ) -> Poll<Result<(), TransferFailure>> {
        if !matches!(self, RequestReplay::Kept(_)) {
            return upload.poll(cx, buffers, source, sink, &mut None);
        }
        let mut keep = |chunk: BodyChunk| {
            self.keep(&chunk.data);
            chunk
        };
        upload.poll(cx, buffers, source, sink, &mut Some(&mut keep))
    }

    fn keep(&mut self, data: &[u8]) {
        if let RequestReplay::Kept(buffer) = self
            && !buffer.add(data)
        {
            // The dropped buffer returns its share of the budget.
            *self = RequestReplay::TooMuch;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(all: &Rc<ReplayBudget>, pieces: &[usize]) -> RequestReplay {
        let mut replay = RequestReplay::Kept(ReplayBuffer::nothing(all));
        for (at, length) in pieces.iter().enumerate() {
            replay.keep(&vec![at as u8; *length]);
        }
        replay
    }

    #[test]
    fn a_call_is_kept_whole_and_holds_no_more_than_its_bound() {
        let all = Rc::<ReplayBudget>::default();
        for pieces in [&[CALL_BYTES_MAX][..], &[1, 0, 2], &[40_000, 10_000, 10_000], &[1000; 65], &[0]] {
            let replay = call(&all, pieces);
            let RequestReplay::Kept(buffer) = &replay else { panic!("{pieces:?}") };
            let sent: Vec<u8> =
                pieces.iter().enumerate().flat_map(|(at, length)| vec![at as u8; *length]).collect();
            assert_eq!(buffer.data, sent);
            assert!(buffer.data.capacity() <= CALL_BYTES_MAX, "{pieces:?}: {}", buffer.data.capacity());
            assert_eq!(all.0.get(), buffer.data.capacity(), "{pieces:?}");
            drop(replay);
            assert_eq!(all.0.get(), 0);
        }
        for pieces in [&[CALL_BYTES_MAX + 1][..], &[CALL_BYTES_MAX, 1, 1], &[40_000, 40_000, 2]] {
            let replay = call(&all, pieces);
            assert_eq!((matches!(replay, RequestReplay::TooMuch), all.0.get()), (true, 0), "{pieces:?}");
        }
    }

    #[test]
    fn the_calls_of_a_worker_share_a_bound() {
        let all = Rc::<ReplayBudget>::default();
        let is_buffered = |replay: &RequestReplay| matches!(replay, RequestReplay::Kept(_));
        let longest = || call(&all, &[CALL_BYTES_MAX]);
        let mut calls: Vec<RequestReplay> = (0..256).map(|_| longest()).collect();
        assert!(calls.iter().all(is_buffered));
        assert_eq!(all.0.get(), WORKER_BYTES_MAX);
        // A call beyond the budget occupies none of it.
        assert!(!is_buffered(&call(&all, &[1])));
        assert_eq!(all.0.get(), WORKER_BYTES_MAX);
        calls[7] = RequestReplay::Off;
        let half = call(&all, &[CALL_BYTES_MAX / 2]);
        assert!(is_buffered(&half) && !is_buffered(&longest()));
        drop(half);
        assert!(is_buffered(&longest()));
    }
}
