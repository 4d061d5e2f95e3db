//! Large flows and bodies between two TCP sockets by splice(2): the kernel moves pages, without a copy to
//! user space.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use rustix::net::RecvFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::transport::stream::TransportStream;
use crate::transport::tcp::TcpConnection;

/// Requested capacity of a pipe. The kernel may grant less to unprivileged users.
const PIPE_BYTES: usize = 1024 * 1024;
/// Minimum useful capacity: below, splicing takes more system calls than copying. Above
/// `pipe-user-pages-soft`, unprivileged users get pipes of two pages (pipe(7)).
const USEFUL_BYTES: usize = 64 * 1024;
/// Number of idle pipes that a worker retains.
const SPARE_MAX: usize = 16;
/// Maximum number of pipes in use per worker.
const PIPES_MAX: usize = 512;

/// Number of requests without a pipe after a refusal, before the kernel is called again.
const PASSES_AFTER_REFUSAL: u32 = 1000;

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

thread_local! {
    static SPARE: RefCell<Vec<PipeEnds>> = const { RefCell::new(Vec::new()) };
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    /// Remaining number of such requests.
    static LEFT_ALONE: Cell<u32> = const { Cell::new(0) };
    static IS_REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// The side on which moving bytes failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyFailure {
    Source,
    Sink,
}

/// One direction of a splice. It holds a pipe only while bytes wait for the sink, so idle flows use none.
#[derive(Default)]
pub(crate) struct SplicePath {
    pipe: Option<SplicePipe>,
}

/// The result of one step of a splice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpliceStep {
    /// The pipe took bytes from the source.
    Filled(usize),
    /// The sink took bytes from the pipe.
    Drained(usize),
    SourceEnded,
    /// No bytes were moved, and the flow must be copied: a side is no plain socket, no pipe is free, or the
    /// kernel refuses.
    Refused,
}

impl SplicePath {
    /// Whether bytes in the pipe wait for the sink.
    #[inline]
    pub(crate) fn holds_bytes(&self) -> bool {
        self.pipe.is_some()
    }

    /// Drains the pipe or, if it is empty, fills it with at most `bytes_max` bytes.
    pub(crate) fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut TransportStream,
        sink: &mut TransportStream,
        bytes_max: u64,
    ) -> Poll<Result<SpliceStep, CopyFailure>> {
        let Some(to) = sink.socket() else { return self.refuse(CopyFailure::Sink) };
        if let Some(mut pipe) = self.pipe.take() {
            return match pipe.poll_drain(cx, to) {
                Poll::Pending => {
                    self.pipe = Some(pipe);
                    Poll::Pending
                }
                Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(Err(CopyFailure::Sink)),
                Poll::Ready(Ok(count)) => {
                    self.pipe = Some(pipe).filter(|pipe| !pipe.is_empty());
                    Poll::Ready(Ok(SpliceStep::Drained(count)))
                }
            };
        }
        let (Some(from), Some(mut pipe)) = (source.socket(), SplicePipe::take()) else {
            return Poll::Ready(Ok(SpliceStep::Refused));
        };
        Poll::Ready(match ready!(pipe.poll_fill(cx, from, bytes_max)) {
            Ok(0) => Ok(SpliceStep::SourceEnded),
            Ok(count) => {
                self.pipe = Some(pipe);
                Ok(SpliceStep::Filled(count))
            }
            Err(error) if is_refusal(&error) => Ok(SpliceStep::Refused),
            Err(_) => Err(CopyFailure::Source),
        })
    }

    /// Refuses to splice. Bytes in the pipe cannot be copied, so with them the flow has failed.
    #[cold]
    fn refuse(&self, failure: CopyFailure) -> Poll<Result<SpliceStep, CopyFailure>> {
        Poll::Ready(if self.holds_bytes() { Err(failure) } else { Ok(SpliceStep::Refused) })
    }
}

struct PipeEnds {
    read: OwnedFd,
    write: OwnedFd,
}

/// A pipe with the bytes in flight from one socket to another.
struct SplicePipe {
    ends: Option<PipeEnds>,
    buffered: usize,
}

impl SplicePipe {
    /// Takes a pipe; `None` at the limit of the worker, or if the kernel refuses.
    fn take() -> Option<SplicePipe> {
        if IN_USE.get() >= PIPES_MAX || IS_REFUSED.get() {
            return None;
        }
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let ends = spare.or_else(request)?;
        IN_USE.set(IN_USE.get() + 1);
        Some(SplicePipe { ends: Some(ends), buffered: 0 })
    }

    /// Whether the pipe contains no bytes.
    fn is_empty(&self) -> bool {
        self.buffered == 0
    }

    /// Splices at most `bytes_max` bytes into the empty pipe; 0 is the end of the source.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut TcpConnection,
        bytes_max: u64,
    ) -> Poll<io::Result<usize>> {
        match ready!(self.poll_fill_from(cx, source.register()?, bytes_max)) {
            // The kernel reports the cause of a broken connection once. If a write has received it, this end
            // is a failure (decision 46).
            Ok(0) => Poll::Ready(source.end_of_reading()),
            filled => Poll::Ready(filled),
        }
    }

    fn poll_fill_from(
        &mut self,
        cx: &mut Context<'_>,
        source: &TcpStream,
        bytes_max: u64,
    ) -> Poll<io::Result<usize>> {
        let Some(ends) = &self.ends else { return Poll::Ready(Ok(0)) };
        let bytes_max = usize::try_from(bytes_max).unwrap_or(PIPE_BYTES).min(PIPE_BYTES);
        loop {
            ready!(source.poll_read_ready(cx))?;
            let received = source.try_io(Interest::READABLE, || {
                Ok(rustix::pipe::splice(source, None, &ends.write, None, bytes_max, FLAGS)?)
            });
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    IS_REFUSED.set(IS_REFUSED.get() || is_refusal(&error));
                    return Poll::Ready(Err(error));
                }
                Ok(count) => {
                    self.buffered = count;
                    return Poll::Ready(Ok(count));
                }
            }
        }
    }

    /// Splices some bytes of the non-empty pipe to the sink.
    fn poll_drain(&mut self, cx: &mut Context<'_>, sink: &mut TcpConnection) -> Poll<io::Result<usize>> {
        let drained = ready!(self.poll_drain_to(cx, sink.register()?));
        if let Err(error) = &drained {
            // Later reads of this socket would see only an end: the kernel reports the error once (decision
            // 46).
            sink.note_failure(error.kind());
        }
        Poll::Ready(drained)
    }

    fn poll_drain_to(&mut self, cx: &mut Context<'_>, sink: &TcpStream) -> Poll<io::Result<usize>> {
        let Some(ends) = &self.ends else { return Poll::Ready(Ok(0)) };
        loop {
            ready!(sink.poll_write_ready(cx))?;
            let went = sink.try_io(Interest::WRITABLE, || {
                Ok(rustix::pipe::splice(&ends.read, None, sink, None, self.buffered, FLAGS)?)
            });
            match went {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    self.buffered -= count;
                    return Poll::Ready(Ok(count));
                }
            }
        }
    }
}

/// Whether the kernel does not support splicing here. No bytes were moved, and the worker creates no further
/// pipes.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
    )
}

/// Updates the readiness of a source in the reactor by a peek. Not needed after a receive that did not fill
/// its buffer.
pub(crate) fn probe_readable(source: &mut TcpConnection) {
    let Ok(source) = source.register() else { return };
    let looked = source.try_io(Interest::READABLE, || {
        let mut room = [0_u8; 1];
        Ok(rustix::net::recv(&*source, &mut room, RecvFlags::PEEK | RecvFlags::DONTWAIT)?)
    });
    // EAGAIN clears the readiness; the next read reports any other error.
    drop(looked);
}

impl Drop for SplicePipe {
    fn drop(&mut self) {
        IN_USE.set(IN_USE.get() - 1);
        // The remaining bytes belong to a failed flow, so the pipe is closed.
        if let Some(ends) = self.ends.take().filter(|_| self.buffered == 0) {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_MAX {
                    spare.push(ends);
                }
            });
        }
    }
}

/// Creates a pipe, unless the kernel has refused one recently.
fn request() -> Option<PipeEnds> {
    if let Some(left) = LEFT_ALONE.get().checked_sub(1) {
        LEFT_ALONE.set(left);
        return None;
    }
    make().inspect_err(|_| LEFT_ALONE.set(PASSES_AFTER_REFUSAL)).ok()
}

fn make() -> io::Result<PipeEnds> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
    let size = rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES);
    let size = size.or_else(|_| rustix::pipe::fcntl_getpipe_size(&write))?;
    // A pipe this small would be slower than copying.
    if size < USEFUL_BYTES {
        return Err(io::ErrorKind::QuotaExceeded.into());
    }
    Ok(PipeEnds { read, write })
}
