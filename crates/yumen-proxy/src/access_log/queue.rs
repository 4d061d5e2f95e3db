//! Lines on their way from the workers to the thread that writes them, and what became of them.
//!
//! Knows where lines end and nothing else of them. Who hands lines over never waits.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// A line may have so many bytes; a longer one takes the room of several, so that the memory is bounded too.
const LINE_BYTES: u64 = 1024;

/// How often it is said that lines are lost.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// The writer's end and the workers' end of a queue in which `lines_max` lines may wait.
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

/// The workers' end.
#[derive(Clone)]
pub struct LogQueue {
    batches: Sender<LogBatch>,
    backlog: LogBacklog,
    pub(super) lines_max: u64,
}

impl LogQueue {
    /// Hands lines over; says how many had to be dropped, as there was no room. An empty queue takes any batch.
    pub(super) fn offer(&self, text: Vec<u8>, lines: u64) -> u64 {
        let room = lines.max(text.len() as u64 / LINE_BYTES);
        let counts = &*self.backlog.0;
        let taken = counts.room.fetch_add(room, Relaxed);
        if taken == 0 || taken + room <= self.lines_max {
            counts.waiting.fetch_add(lines, Relaxed);
            if self.batches.send(LogBatch { text, lines, room }).is_ok() {
                return 0;
            }
            counts.waiting.fetch_sub(lines, Relaxed);
        }
        counts.room.fetch_sub(room, Relaxed);
        lines
    }

    /// How many lines the writer has lost that nobody was told of yet.
    pub(super) fn take_lost_lines(&self) -> u64 {
        let lost = &self.backlog.0.lost;
        if lost.load(Relaxed) == 0 { 0 } else { lost.swap(0, Relaxed) }
    }
}

/// What waits to be written.
#[derive(Clone, Default)]
pub struct LogBacklog(Arc<BacklogCounts>);

#[derive(Default)]
struct BacklogCounts {
    /// What is taken of the queue, in lines as long as they may be.
    room: AtomicU64,
    waiting: AtomicU64,
    lost: AtomicU64,
}

impl LogBacklog {
    /// How many lines are not written yet.
    pub fn lines(&self) -> u64 {
        self.0.waiting.load(Acquire)
    }

    fn settle(&self, batch: &LogBatch, lost: u64) {
        self.0.lost.fetch_add(lost, Relaxed);
        self.0.room.fetch_sub(batch.room, Relaxed);
        self.0.waiting.fetch_sub(batch.lines, Release);
    }
}

/// The writer's end.
pub struct LogQueueWriter {
    batches: Receiver<LogBatch>,
    backlog: LogBacklog,
}

impl LogQueueWriter {
    /// What waits for it, to be looked at while it runs.
    pub fn backlog(&self) -> LogBacklog {
        self.backlog.clone()
    }

    /// Writes until all workers are gone. Run on a thread of its own.
    pub fn run(self, sink: impl Write) {
        let mut output = LogOutput { sink, is_torn: false };
        let mut losses = LineLosses::default();
        for batch in &self.batches {
            let lost = match output.write(&batch.text) {
                Ok(()) => 0,
                Err(PartialWrite { written, error }) => {
                    let whole = memchr::memchr_iter(b'\n', &batch.text[..written]).count() as u64;
                    let lost = batch.lines.saturating_sub(whole);
                    losses.add(lost, error);
                    lost
                }
            };
            self.backlog.settle(&batch, lost);
            losses.report_losses_throttled();
        }
        losses.say();
    }
}

/// Where lines go.
struct LogOutput<W> {
    sink: W,
    /// What was written last stopped within a line.
    is_torn: bool,
}

struct PartialWrite {
    written: usize,
    error: io::Error,
}

impl<W: Write> LogOutput<W> {
    fn write(&mut self, text: &[u8]) -> Result<(), PartialWrite> {
        if self.is_torn {
            // What comes next must not look like the rest of that line.
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

/// Lines that were lost and not spoken of yet.
#[derive(Default)]
struct LineLosses {
    lines: u64,
    error: Option<io::Error>,
    said: Option<Instant>,
}

impl LineLosses {
    fn add(&mut self, lines: u64, error: io::Error) {
        self.lines += lines;
        self.error = Some(error);
    }

    /// A full disk must not fill the node's log as well.
    fn report_losses_throttled(&mut self) {
        if self.said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
            self.say();
        }
    }

    fn say(&mut self) {
        if let Some(error) = self.error.take() {
            let lines = std::mem::take(&mut self.lines);
            tracing::error!(%error, lines, "access log write failed, lines lost");
            self.said = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
