//! The sender of one sink: makes batches of its entries, sends, repeats and drops them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::Instant;
use yumen_base::Now;
use yumen_plugin::sink::{SinkReceiver, SinkResult};
use yumen_plugin::{SinkBatch, SinkChunk, SinkHeartbeat, SinkReply, SinkRequest, SinkVerdict};

use crate::batch::BatchClock;
use crate::connector::{OutboundConnector, SendFault};
use crate::standing::SinkStanding;
use crate::transport::SinkTransport;

/// Longest pause that a server may ask for by `Retry-After`.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Shortest pause before a repetition, so that a server that refuses at once is not flooded.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(20);

/// Resources that all senders of a process share.
#[derive(Clone)]
pub struct SenderTools {
    connector: OutboundConnector,
    /// True once the process ends: waiting entries are sent at once, without pauses.
    stop: watch::Receiver<bool>,
    started: Instant,
}

impl SenderTools {
    /// Resources for senders that end when `stop` becomes true.
    pub fn new(stop: watch::Receiver<bool>) -> SenderTools {
        SenderTools { connector: OutboundConnector::default(), stop, started: Instant::now() }
    }

    /// Monotonic milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { mono_us: self.now_ms() * 1000, unix_ms: unix.as_millis() as u64 }
    }
}

/// Sends the entries of a queue until it is closed and empty, or the process ends.
pub async fn run_sender(receiver: SinkReceiver, tools: SenderTools, standing: Arc<SinkStanding>) {
    let spec = &receiver.queue.spec;
    let beats = receiver.queue.encoder.heartbeat(0).is_some();
    let mut sender = SinkSender {
        beat_at: beats.then(Instant::now),
        beats_taken: 0,
        clock: BatchClock::new(&spec.policy),
        transport: SinkTransport::new(&spec.address, tools.connector.clone()),
        separator: receiver.queue.encoder.framing().separator.len(),
        waiting: VecDeque::new(),
        is_prepared: false,
        receiver,
        tools,
        standing,
    };
    while sender.step().await {}
}

struct SinkSender {
    receiver: SinkReceiver,
    tools: SenderTools,
    standing: Arc<SinkStanding>,
    clock: BatchClock,
    transport: SinkTransport,
    separator: usize,
    waiting: VecDeque<SinkChunk>,
    /// Whether the preflight request was answered.
    is_prepared: bool,
    /// The time of the next heartbeat; `None` for an encoder without them.
    beat_at: Option<Instant>,
    /// Heartbeats that the server has taken.
    beats_taken: u64,
}

/// The next event of a sender.
enum SenderEvent {
    Chunk(SinkChunk),
    Ring,
    Beat,
    Closed,
    Stop,
}

impl SinkSender {
    /// Waits for an event and sends the batches that are due. Returns false at the end.
    async fn step(&mut self) -> bool {
        let is_ending = match self.next_event().await {
            SenderEvent::Chunk(chunk) => {
                self.clock.add(chunk.len() as u64, self.tools.now_ms());
                self.waiting.push_back(chunk);
                false
            }
            SenderEvent::Ring => false,
            SenderEvent::Beat => {
                self.send_heartbeat().await;
                false
            }
            SenderEvent::Closed => true,
            SenderEvent::Stop => {
                self.take_all();
                true
            }
        };
        loop {
            let now_ms = self.tools.now_ms();
            let due = self.clock.due(now_ms);
            let count = match due {
                0 if is_ending => self.waiting_entries().min(self.batch_max()),
                due => due as usize,
            };
            if count == 0 {
                break;
            }
            self.clock.taken(count as u64, now_ms);
            let (batch, bytes) = self.take_batch(count);
            self.send(batch, bytes).await;
        }
        !is_ending
    }

    async fn next_event(&mut self) -> SenderEvent {
        if *self.tools.stop.borrow() {
            return SenderEvent::Stop;
        }
        let ring = self.clock.ring_ms().map(|ring_ms| self.tools.started + Duration::from_millis(ring_ms));
        let (ring, beat) = (sleep_until(ring), sleep_until(self.beat_at));
        let (receiver, stop) = (&mut self.receiver, &mut self.tools.stop);
        tokio::select! {
            chunk = poll_fn(|cx| receiver.poll_chunk(cx)) => match chunk {
                Some(chunk) => SenderEvent::Chunk(chunk),
                None => SenderEvent::Closed,
            },
            () = ring => SenderEvent::Ring,
            () = beat => SenderEvent::Beat,
            // An error is the end of the process too.
            _ = stop.changed() => SenderEvent::Stop,
        }
    }

    /// Sends one heartbeat. A failure costs no entry, so it is no failure of the sink.
    async fn send_heartbeat(&mut self) {
        let due = self.receiver.queue.encoder.heartbeat(self.beats_taken);
        let Some(SinkHeartbeat { request, interval_ms }) = due else {
            self.beat_at = None;
            return;
        };
        let sink = &self.receiver.queue.spec.address;
        match self.transport.send(&request).await {
            Ok(reply) if reply.status < 400 => self.beats_taken += 1,
            Ok(SinkReply { status, .. }) => tracing::debug!(%sink, status, "keep-alive refused"),
            Err(SendFault::Failed(error) | SendFault::Refused(error)) => {
                tracing::debug!(%sink, error, "keep-alive failed");
            }
        }
        self.beat_at = Some(Instant::now() + Duration::from_millis(interval_ms));
    }

    /// Takes the entries that workers have handed over before the process ended.
    fn take_all(&mut self) {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        while let std::task::Poll::Ready(Some(chunk)) = self.receiver.poll_chunk(&mut cx) {
            self.waiting.push_back(chunk);
        }
    }

    fn batch_max(&self) -> usize {
        self.receiver.queue.spec.policy.batch_max_size.max(1) as usize
    }

    fn waiting_entries(&self) -> usize {
        self.waiting.iter().map(SinkChunk::len).sum()
    }

    /// A batch, and the bytes that leave the queue with it: those of separators that a cut removes too.
    fn take_batch(&mut self, count: usize) -> (Vec<SinkChunk>, u64) {
        let (mut left, mut batch, mut bytes) = (count, Vec::new(), 0);
        while left > 0 {
            let Some(chunk) = self.waiting.front_mut() else { break };
            let before = chunk.bytes.len();
            let taken = chunk.split_to(left, self.separator);
            left -= taken.len();
            bytes += before - chunk.bytes.len();
            if chunk.is_empty() {
                self.waiting.pop_front();
            }
            batch.push(taken);
        }
        (batch, bytes as u64)
    }

    /// Sends one batch with its repetitions, and counts the end of its entries.
    async fn send(&mut self, mut batch: Vec<SinkChunk>, mut bytes: u64) {
        let queue = self.receiver.queue.clone();
        let policy = &queue.spec.policy;
        let mut settle = |entries: usize, result: SinkResult| {
            // The bytes leave with the first entries that end.
            queue.settle(entries as u64, std::mem::take(&mut bytes), result);
        };
        let mut tries = 0;
        let mut requests = self.requests(&batch);
        loop {
            let before = entries_of(&requests);
            let (failure, sent) = self.send_all(&mut requests).await;
            settle(sent, SinkResult::Sent);
            let Some(failure) = failure else {
                self.standing.note_sent();
                // An encoder may leave entries out.
                let left_out = before - sent;
                if left_out > 0 {
                    settle(left_out, SinkResult::DroppedFailed);
                }
                return;
            };
            let BatchFailure { reason, retry_after, refused, retry } = failure;
            let name = &queue.spec.name;
            let (left, total) = (entries_of(&requests), before);
            self.standing.note_failed(&reason, self.tools.now_ms());
            tracing::error!(
                plugin = queue.spec.plugin,
                sink = %queue.spec.address,
                "Batch Processor[{name}] failed to process entries [{left}/{total}]: {reason}"
            );
            settle(refused, SinkResult::DroppedFailed);
            match retry {
                Some(indexes) => {
                    batch = self.pick(&batch, &indexes);
                    requests = self.requests(&batch);
                }
                // The refused request was removed. The next ones are no repetition.
                None if refused > 0 => continue,
                None => {}
            }
            let left = entries_of(&requests);
            if left == 0 {
                return;
            }
            if tries >= policy.max_retry_count {
                tracing::error!(
                    plugin = queue.spec.plugin,
                    sink = %queue.spec.address,
                    "Batch Processor[{name}] exceeded the max_retry_count[{tries}] dropping the entries"
                );
                settle(left, SinkResult::DroppedFailed);
                return;
            }
            tries += 1;
            self.pause(retry_after.unwrap_or(Duration::from_millis(policy.retry_delay_ms))).await;
        }
    }

    fn requests(&self, batch: &[SinkChunk]) -> VecDeque<SinkRequest> {
        let entries = batch.iter().map(SinkChunk::len).sum();
        let batch = SinkBatch { chunks: batch, entries, now: self.tools.now() };
        self.receiver.queue.encoder.requests(&batch).into()
    }

    /// The entries with these indexes.
    fn pick(&self, batch: &[SinkChunk], indexes: &[usize]) -> Vec<SinkChunk> {
        let entries: Vec<&[u8]> = batch.iter().flat_map(|chunk| chunk.entries(self.separator)).collect();
        let picked = indexes.iter().filter_map(|index| entries.get(*index));
        picked.map(|entry| SinkChunk::single(entry.to_vec())).collect()
    }

    /// Sends the requests in order and removes those that were taken. Returns the number of their entries.
    async fn send_all(&mut self, requests: &mut VecDeque<SinkRequest>) -> (Option<BatchFailure>, usize) {
        let mut sent = 0;
        if let Err(failure) = self.prepare().await {
            return (Some(failure), sent);
        }
        while let Some(request) = requests.front() {
            let entries = request.entries;
            match self.send_one(request).await {
                Ok(()) => sent += entries,
                Err(BatchFailure { refused, retry: None, reason, retry_after }) if refused > 0 => {
                    // This request can never be sent; the next ones may.
                    requests.pop_front();
                    return (Some(BatchFailure { refused, retry: None, reason, retry_after }), sent);
                }
                Err(failure) => {
                    if let Some(indexes) = &failure.retry {
                        sent += entries - failure.refused - indexes.len();
                    }
                    return (Some(failure), sent);
                }
            }
            requests.pop_front();
        }
        (None, sent)
    }

    /// Sends the preflight request of the encoder, until it was answered once.
    async fn prepare(&mut self) -> Result<(), BatchFailure> {
        if self.is_prepared {
            return Ok(());
        }
        let encoder = self.receiver.queue.encoder.clone();
        if let Some(request) = encoder.preflight() {
            let reply = self.transport.send(&request).await;
            let reply = reply.map_err(|fault| BatchFailure::of(fault, 0))?;
            if reply.status >= 400 {
                let reason = format!("server returned status code[{}] to the first request", reply.status);
                return Err(BatchFailure::retry(reason));
            }
            encoder.learn(&reply);
        }
        self.is_prepared = true;
        Ok(())
    }

    async fn send_one(&mut self, request: &SinkRequest) -> Result<(), BatchFailure> {
        let reply = self.transport.send(request).await;
        let reply = reply.map_err(|fault| BatchFailure::of(fault, request.entries))?;
        match self.receiver.queue.encoder.verdict(&reply) {
            SinkVerdict::Sent => Ok(()),
            SinkVerdict::Retry(reason) => {
                Err(BatchFailure { retry_after: retry_after(&reply), ..BatchFailure::retry(reason) })
            }
            SinkVerdict::Partial { mut retry, dropped, reason } => {
                let retry_after = retry_after(&reply);
                // A server may list more results than there were entries.
                retry.retain(|index| *index < request.entries);
                let refused = dropped.min(request.entries.saturating_sub(retry.len()));
                Err(BatchFailure { reason, retry_after, refused, retry: Some(retry) })
            }
        }
    }

    /// Waits before a repetition, with a jitter of 20 %; not at the end of the process.
    async fn pause(&mut self, delay: Duration) {
        let jitter = f64::from(getrandom::u32().unwrap_or(0)) / f64::from(u32::MAX);
        let delay = delay.mul_f64(0.8 + 0.4 * jitter).max(RETRY_PAUSE_MIN);
        if *self.tools.stop.borrow() {
            tokio::time::sleep(RETRY_PAUSE_MIN).await;
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            _ = self.tools.stop.changed() => {}
        }
    }
}

/// Completes at this time; never without one.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A failed try.
struct BatchFailure {
    reason: String,
    retry_after: Option<Duration>,
    /// Entries that can never be sent.
    refused: usize,
    /// Indexes of the entries to repeat; `None` repeats the rest of the requests.
    retry: Option<Vec<usize>>,
}

impl BatchFailure {
    fn retry(reason: String) -> BatchFailure {
        BatchFailure { reason, retry_after: None, refused: 0, retry: None }
    }

    fn of(fault: SendFault, entries: usize) -> BatchFailure {
        match fault {
            SendFault::Failed(reason) => BatchFailure::retry(reason),
            SendFault::Refused(reason) => BatchFailure { refused: entries, ..BatchFailure::retry(reason) },
        }
    }
}

/// The pause that an overloaded server asks for.
fn retry_after(reply: &SinkReply) -> Option<Duration> {
    let seconds = reply.retry_after_s.filter(|_| matches!(reply.status, 429 | 503))?;
    Some(Duration::from_secs(seconds.into()).min(RETRY_AFTER_MAX))
}

fn entries_of(requests: &VecDeque<SinkRequest>) -> usize {
    requests.iter().map(|request| request.entries).sum()
}

#[cfg(test)]
mod tests;
