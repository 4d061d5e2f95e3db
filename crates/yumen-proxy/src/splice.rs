//! Large flows and long bodies between two TCP sockets by splice(2): the system moves pages, nothing is copied here.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use rustix::net::RecvFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::tcp::TcpConnection;

/// How much a pipe may hold. The system may give less to users that are not privileged.
const PIPE_BYTES: usize = 1024 * 1024;
/// A smaller one takes more calls than copying does. Users that are not privileged get pipes of two pages once they
/// have many (`pipe-user-pages-soft` of pipe(7)).
const USEFUL_BYTES: usize = 64 * 1024;
/// Pipes a worker keeps for the next flows, and the most it has at a time.
const SPARE_MAX: usize = 16;
const PIPES_MAX: usize = 512;

/// How often to do without a pipe before the system is asked again.
const PASSES_AFTER_REFUSAL: u32 = 1000;

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

thread_local! {
    static SPARE: RefCell<Vec<PipeEnds>> = const { RefCell::new(Vec::new()) };
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    /// Of these, so many are left.
    static LEFT_ALONE: Cell<u32> = const { Cell::new(0) };
    static IS_REFUSED: Cell<bool> = const { Cell::new(false) };
}

struct PipeEnds {
    read: OwnedFd,
    write: OwnedFd,
}

/// Bytes on their way from one socket to another.
pub(crate) struct SplicePipe {
    ends: Option<PipeEnds>,
    held: usize,
}

impl SplicePipe {
    /// A pipe, unless the worker has as many as may be or the system gives none.
    pub(crate) fn take() -> Option<SplicePipe> {
        if IN_USE.get() >= PIPES_MAX || IS_REFUSED.get() {
            return None;
        }
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let ends = spare.or_else(ask)?;
        IN_USE.set(IN_USE.get() + 1);
        Some(SplicePipe { ends: Some(ends), held: 0 })
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Fills the pipe, which is empty, with at most so many bytes of what has come; 0 is the end of the source.
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

    /// Passes on some of what is in the pipe, which is not empty.
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

/// Whether the system does not do this for us at all. Nothing was moved, and no pipe is given out any more.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
    )
}

/// Has the reactor know whether anything stands behind what was taken of a source. After a receive that had room for
/// more it does.
pub(crate) fn probe_readable(source: &mut TcpConnection) {
    let Ok(source) = source.register() else { return };
    let looked = source.try_io(Interest::READABLE, || {
        let mut room = [0_u8; 1];
        Ok(rustix::net::recv(&*source, &mut room, RecvFlags::PEEK | RecvFlags::DONTWAIT)?)
    });
    // That there is nothing is what the call is for; anything else is found by who reads next.
    drop(looked);
}

impl Drop for SplicePipe {
    fn drop(&mut self) {
        IN_USE.set(IN_USE.get() - 1);
        // A pipe with bytes in it is of no use to anybody else.
        if let Some(ends) = self.ends.take().filter(|_| self.held == 0) {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_MAX {
                    spare.push(ends);
                }
            });
        }
    }
}

/// A new one. Once the system gave none it is left alone for a while.
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
    if size < USEFUL_BYTES {
        return Err(io::ErrorKind::QuotaExceeded.into());
    }
    Ok(PipeEnds { read, write })
}
