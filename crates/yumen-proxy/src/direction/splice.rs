//! Large flows between two TCP sockets by splice(2): the system moves pages, nothing is copied here.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// How much a pipe may hold. The system may give less to users that are not privileged.
const PIPE_BYTES: usize = 1024 * 1024;
/// Pipes a worker keeps for the next flows, and the most it has at a time.
const SPARE_MAX: usize = 16;
const PIPES_MAX: usize = 512;

thread_local! {
    static SPARE: RefCell<Vec<Ends>> = const { RefCell::new(Vec::new()) };
    static IN_USE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

/// Bytes on their way from one socket to another.
pub(super) struct Pipe {
    ends: Option<Ends>,
    held: usize,
}

/// What a call moved.
pub(super) enum Moved {
    /// So many bytes have arrived in the pipe and left it.
    Bytes(usize),
    /// The source has ended, and everything has left.
    End,
}

/// Which side failed.
pub(super) enum Failed {
    Source,
    Sink,
}

impl Pipe {
    /// A pipe, unless the worker has as many as may be or the system gives none.
    pub(super) fn take() -> Option<Pipe> {
        if IN_USE.get() >= PIPES_MAX {
            return None;
        }
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let ends = spare.or_else(|| make().ok())?;
        IN_USE.set(IN_USE.get() + 1);
        Some(Pipe { ends: Some(ends), held: 0 })
    }

    /// Whether nothing is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Moves what is there until one side would block, has ended, or has moved a good piece.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &TcpStream,
        sink: &TcpStream,
    ) -> Poll<Result<Moved, Failed>> {
        let Some(ends) = &self.ends else { return Poll::Ready(Err(Failed::Source)) };
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        while self.held == 0 {
            ready!(source.poll_read_ready(cx)).map_err(|_| Failed::Source)?;
            let came = source.try_io(Interest::READABLE, || {
                Ok(rustix::pipe::splice(source, None, &ends.write, None, PIPE_BYTES, flags)?)
            });
            match came {
                Ok(0) => return Poll::Ready(Ok(Moved::End)),
                Ok(count) => self.held = count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(Err(Failed::Source)),
            }
        }
        ready!(sink.poll_write_ready(cx)).map_err(|_| Failed::Sink)?;
        let went = sink.try_io(Interest::WRITABLE, || {
            Ok(rustix::pipe::splice(&ends.read, None, sink, None, self.held, flags)?)
        });
        match went {
            Ok(count) => {
                self.held -= count;
                Poll::Ready(Ok(Moved::Bytes(count)))
            }
            // The readiness was used up; asking again waits.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Ready(Ok(Moved::Bytes(0))),
            Err(_) => Poll::Ready(Err(Failed::Sink)),
        }
    }
}

impl Drop for Pipe {
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

fn make() -> io::Result<Ends> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
    // Where the system gives no more, a small pipe only takes more calls.
    let _ = rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES);
    Ok(Ends { read, write })
}
