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

struct PipeEnds {
    read: OwnedFd,
    write: OwnedFd,
}

/// A pipe with the bytes in flight from one socket to another.
pub(crate) struct SplicePipe {
    ends: Option<PipeEnds>,
    held: usize,
}

impl SplicePipe {
    /// Takes a pipe; `None` at the limit of the worker, or if the kernel refuses.
    pub(crate) fn take() -> Option<SplicePipe> {
        if IN_USE.get() >= PIPES_MAX || IS_REFUSED.get() {
            return None;
        }
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let ends = spare.or_else(ask)?;
        IN_USE.set(IN_USE.get() + 1);
        Some(SplicePipe { ends: Some(ends), held: 0 })
    }

    /// Whether the pipe contains no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Splices at most `bytes_max` bytes into the empty pipe; 0 is the end of the source.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut TcpConnection,
        bytes_max: u64,
    ) -> Poll<io::Result<usize>> {
        match ready!(self.poll_fill_from(cx, source.register()?, bytes_max)) {
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
            let came = source.try_io(Interest::READABLE, || {
                Ok(rustix::pipe::splice(source, None, &ends.write, None, bytes_max, FLAGS)?)
            });
            match came {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    IS_REFUSED.set(IS_REFUSED.get() || is_refusal(&error));
                    return Poll::Ready(Err(error));
                }
                Ok(count) => {
                    self.held = count;
                    return Poll::Ready(Ok(count));
                }
            }
        }
    }

    /// Splices some bytes of the non-empty pipe to the sink.
    pub(crate) fn poll_drain(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut TcpConnection,
    ) -> Poll<io::Result<usize>> {
        let drained = ready!(self.poll_drain_to(cx, sink.register()?));
        if let Err(error) = &drained {
            sink.note_failure(error.kind());
        }
        Poll::Ready(drained)
    }

    fn poll_drain_to(&mut self, cx: &mut Context<'_>, sink: &TcpStream) -> Poll<io::Result<usize>> {
        let Some(ends) = &self.ends else { return Poll::Ready(Ok(0)) };
        loop {
            ready!(sink.poll_write_ready(cx))?;
            let went = sink.try_io(Interest::WRITABLE, || {
                Ok(rustix::pipe::splice(&ends.read, None, sink, None, self.held, FLAGS)?)
            });
            match went {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    self.held -= count;
                    return Poll::Ready(Ok(count));
                }
            }
        }
    }
}

/// Whether the kernel does not support splicing here. No bytes were moved, and the worker creates no further
/// pipes.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
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
        if let Some(ends) = self.ends.take().filter(|_| self.held == 0) {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_MAX {
                    spare.push(ends);
                }
            });
        }
    }
}

/// Creates a pipe, unless the kernel has refused one recently.
fn ask() -> Option<PipeEnds> {
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
