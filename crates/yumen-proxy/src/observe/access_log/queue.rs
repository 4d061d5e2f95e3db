//! Queue of access log lines between the workers and the writer thread, with counts of lost lines.
//!
//! Owns line boundaries only. A sender never waits.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Bytes that count as one line. Longer lines count as several, so the limit bounds the memory too.
const LINE_BYTES: u64 = 1024;

/// Shortest time between two reports of lost lines.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Creates a queue of at most `lines_max` lines.
pub fn queue(lines_max: u64) -> (LogQueue, LogQueueWriter) {
    let (sender, batches) = channel();
    let backlog = LogBacklog::default();
    (LogQueue { batches: sender, backlog: backlog.clone(), lines_max }, LogQueueWriter { batches, backlog })
}

struct LogBatch {
    text: Vec<u8>,
    lines: u64,
    room: u64,
}

/// Sending end of a worker.
#[derive(Clone)]
pub struct LogQueue {
    batches: Sender<LogBatch>,
    backlog: LogBacklog,
    pub(super) lines_max: u64,
}

impl LogQueue {
    /// Queues lines; returns the number dropped because the queue is full. An empty queue accepts a batch of
    /// any size.
    pub(super) fn offer(&self, text: Vec<u8>, lines: u64) -> u64 {
        let room = lines.max(text.len() as u64 / LINE_BYTES);
        let counts = &*self.backlog.0;
        // Reserved before the check, so that concurrent workers cannot exceed the limit together.
        let taken = counts.room.fetch_add(room, Relaxed);
        if taken == 0 || taken + room <= self.lines_max {
            // Counted before the send: the writer may settle the batch at once.
            counts.waiting.fetch_add(lines, Relaxed);
            if self.batches.send(LogBatch { text, lines, room }).is_ok() {
                return 0;
            }
            counts.waiting.fetch_sub(lines, Relaxed);
        }
        counts.room.fetch_sub(room, Relaxed);
        lines
    }

    /// Takes the number of lines that the writer has lost since the last call.
    pub(super) fn take_lost_lines(&self) -> u64 {
        let lost = &self.backlog.0.lost;
        // Nearly always 0: a swap would take the cache line from the other workers.
        if lost.load(Relaxed) == 0 { 0 } else { lost.swap(0, Relaxed) }
    }
}

/// Lines that are not written yet.
#[derive(Clone, Default)]
pub struct LogBacklog(Arc<BacklogCounts>);

#[derive(Default)]
struct BacklogCounts {
    /// Used capacity of the queue, in units of `LINE_BYTES`.
    room: AtomicU64,
    waiting: AtomicU64,
    lost: AtomicU64,
}

impl LogBacklog {
    /// Number of lines that are not written yet.
    pub fn lines(&self) -> u64 {
        // Pairs with the `Release` of `settle`.
        self.0.waiting.load(Acquire)
    }

    fn settle(&self, batch: &LogBatch, lost: u64) {
        self.0.lost.fetch_add(lost, Relaxed);
        self.0.room.fetch_sub(batch.room, Relaxed);
        // Last, with `Release`: a reader of `lines` sees that the write is complete.
        self.0.waiting.fetch_sub(batch.lines, Release);
    }
}

/// Receiving end of the writer thread.
pub struct LogQueueWriter {
    batches: Receiver<LogBatch>,
    backlog: LogBacklog,
}

impl LogQueueWriter {
    /// Handle to observe the queue while the writer runs.
    pub fn backlog(&self) -> LogBacklog {
        self.backlog.clone()
    }

    /// Writes until all workers have ended. Blocks, so it needs its own thread.
    pub fn run(self, sink: impl Write) {
        let mut output = LogOutput { sink, is_torn: false };
        let mut losses = LineLosses::default();
        for batch in &self.batches {
            let lost = match output.write(&batch.text) {
                Ok(()) => 0,
                Err(PartialWrite { written, error }) => {
                    // The lines ahead of the torn one are complete.
                    let whole = memchr::memchr_iter(b'\n', &batch.text[..written]).count() as u64;
                    let lost = batch.lines.saturating_sub(whole);
                    losses.add(lost, error);
                    lost
                }
            };
            self.backlog.settle(&batch, lost);
            losses.report_losses_throttled();
        }
        losses.report();
    }
}

/// Destination of lines.
struct LogOutput<W> {
    sink: W,
    /// Whether the last write ended within a line.
    is_torn: bool,
}

struct PartialWrite {
    written: usize,
    error: io::Error,
}

impl<W: Write> LogOutput<W> {
    fn write(&mut self, text: &[u8]) -> Result<(), PartialWrite> {
        if self.is_torn {
            // Without this line end, the next line would continue the torn one.
            self.write_all(b"\n").map_err(|failed| PartialWrite { written: 0, ..failed })?;
            self.is_torn = false;
        }
        self.write_all(text).inspect_err(|failed| {
            self.is_torn = text[..failed.written].last().is_some_and(|byte| *byte != b'\n');
        })
    }

    fn write_all(&mut self, text: &[u8]) -> Result<(), PartialWrite> {
        let mut written = 0;
        while written < text.len() {
            match self.sink.write(&text[written..]) {
                Ok(0) => return Err(PartialWrite { written, error: io::ErrorKind::WriteZero.into() }),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(PartialWrite { written, error }),
            }
        }
        Ok(())
    }
}

/// Lost lines that are not reported yet.
#[derive(Default)]
struct LineLosses {
    lines: u64,
    error: Option<io::Error>,
    reported_at: Option<Instant>,
}

impl LineLosses {
    fn add(&mut self, lines: u64, error: io::Error) {
        self.lines += lines;
        self.error = Some(error);
    }

    /// Reports at most once per `SAID_EVERY`: a full disk must not fill the node log too.
    fn report_losses_throttled(&mut self) {
        if self.reported_at.is_none_or(|reported_at| reported_at.elapsed() >= SAID_EVERY) {
            self.report();
        }
    }

    fn report(&mut self) {
        if let Some(error) = self.error.take() {
            let lines = std::mem::take(&mut self.lines);
            tracing::error!(%error, lines, "access log write failed, lines lost");
            self.reported_at = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
