//! Connections in memory: bytes travel, arrive in random pieces, stall, and end well or badly.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use super::scheduler::Scheduler;

/// Less room would only take long.
const ROOM_MIN: usize = 1500;

thread_local! {
    static NET: RefCell<Option<Rc<Net>>> = const { RefCell::new(None) };
}

type Connecting = Pin<Box<dyn Future<Output = io::Result<End>>>>;
type Dial = Box<dyn Fn(SocketAddr) -> Connecting>;

/// Connects in the simulation that runs on this thread, if one does.
pub(crate) fn connect(address: SocketAddr) -> Option<Connecting> {
    let net = NET.with_borrow(Clone::clone)?;
    let dial = net.dial.borrow();
    dial.as_ref().map(|dial| dial(address))
}

/// Runs a task in the simulation that runs on this thread; gives it back where none does.
pub(crate) fn spawn<T: Future<Output = ()> + 'static>(task: T) -> Option<T> {
    let Some(net) = NET.with_borrow(Clone::clone) else { return Some(task) };
    net.scheduler.spawn("gateway's own".into(), task);
    None
}

/// How bytes travel in a world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// Chance in percent that bytes arrive one by one.
    pub(crate) crumbs: usize,
    /// Chance in percent that a read or write that could go on has to wait once.
    pub(crate) again: usize,
    /// Chance in 10 000 deliveries that the connection is reset.
    pub(crate) resets: usize,
    /// Chance in 1000 deliveries that nothing arrives for a while.
    pub(crate) stalls: usize,
    /// Bytes that may be on the way in one direction, at most.
    pub(crate) room_max: usize,
}

/// All connections of a world.
pub(crate) struct Net {
    pub(crate) scheduler: Rc<Scheduler>,
    pub(crate) weather: Weather,
    dial: RefCell<Option<Dial>>,
    wires: RefCell<Vec<Weak<Wire>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    None,
    End,
    Reset,
}

/// One direction of a connection.
struct Pipe {
    name: String,
    flying: Vec<u8>,
    arrived: Vec<u8>,
    /// Count of bytes delivered, and the range of them that arrives in one piece.
    delivered: usize,
    glued: std::ops::Range<usize>,
    room: usize,
    ending: Ending,
    ended: bool,
    /// Nobody reads any more.
    deaf: bool,
    stalled_until_us: u64,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn has_something(&self) -> bool {
        !self.flying.is_empty() || (self.ending != Ending::None && !self.ended)
    }

    fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }

    fn is_reset(&self) -> bool {
        self.ended && self.ending == Ending::Reset
    }
}

/// Both directions of a connection: what an end reads is at its own index.
struct Wire {
    net: Rc<Net>,
    pipes: [RefCell<Pipe>; 2],
}

/// One end of a connection; dropping it closes.
pub(crate) struct End {
    wire: Rc<Wire>,
    side: usize,
}

impl Net {
    pub(crate) fn new(scheduler: Rc<Scheduler>, weather: Weather) -> Rc<Net> {
        let net = Rc::new(Net { scheduler, weather, dial: RefCell::default(), wires: RefCell::default() });
        NET.set(Some(net.clone()));
        net
    }

    /// Sets what connecting does.
    pub(crate) fn on_connect(&self, dial: impl Fn(SocketAddr) -> Connecting + 'static) {
        *self.dial.borrow_mut() = Some(Box::new(dial));
    }

    /// Ends this thread's net.
    pub(crate) fn close(&self) {
        NET.set(None);
        self.dial.borrow_mut().take();
    }

    /// A new connection: both its ends.
    pub(crate) fn pair(self: &Rc<Net>, near: &str, far: &str) -> (End, End) {
        let pipe = |from: &str, to: &str| {
            RefCell::new(Pipe {
                name: format!("{from} > {to}"),
                flying: Vec::new(),
                arrived: Vec::new(),
                delivered: 0,
                glued: 0..0,
                room: ROOM_MIN + self.scheduler.random.size(self.weather.room_max),
                ending: Ending::None,
                ended: false,
                deaf: false,
                stalled_until_us: 0,
                reader: None,
                writer: None,
            })
        };
        let pipes = [pipe(far, near), pipe(near, far)];
        let wire = Rc::new(Wire { net: self.clone(), pipes });
        self.wires.borrow_mut().push(Rc::downgrade(&wire));
        (End { wire: wire.clone(), side: 0 }, End { wire, side: 1 })
    }

    /// Directions in which something is on its way and may arrive now.
    fn deliverable(&self) -> Vec<(Rc<Wire>, usize)> {
        let mut found = Vec::new();
        let now_us = self.scheduler.now_us.get();
        self.wires.borrow_mut().retain(|wire| {
            let Some(wire) = wire.upgrade() else { return false };
            for side in 0..2 {
                let pipe = wire.pipes[side].borrow();
                if pipe.has_something() && pipe.stalled_until_us <= now_us {
                    drop(pipe);
                    found.push((wire.clone(), side));
                }
            }
            true
        });
        found
    }

    /// How many directions have something to deliver.
    pub(crate) fn deliverable_count(&self) -> usize {
        self.deliverable().len()
    }

    /// When the next stall is over.
    pub(crate) fn next_us(&self) -> Option<u64> {
        let wires = self.wires.borrow();
        let pipes = wires.iter().filter_map(Weak::upgrade).flat_map(|wire| {
            [0, 1].map(|side| {
                let pipe = wire.pipes[side].borrow();
                pipe.has_something().then_some(pipe.stalled_until_us)
            })
        });
        pipes.flatten().min()
    }

    /// Lets something arrive.
    pub(crate) fn deliver_one(&self) {
        let found = self.deliverable();
        let random = &self.scheduler.random;
        let (wire, side) = &found[random.below(found.len())];
        if random.below(1000) < self.weather.stalls {
            let mut pipe = wire.pipes[*side].borrow_mut();
            pipe.stalled_until_us = self.scheduler.now_us.get() + random.size(4_000_000) as u64;
            self.scheduler.note(|| format!("{}: stalls", pipe.name));
            return;
        }
        if random.below(10_000) < self.weather.resets {
            self.scheduler.note(|| format!("{}: reset by the net", wire.pipes[*side].borrow().name));
            wire.reset(0);
            wire.reset(1);
        }
        wire.deliver(*side);
    }
}

impl Wire {
    /// The end that reads at `side` will find the connection reset; what still flies may be lost.
    fn reset(&self, side: usize) {
        let mut pipe = self.pipes[side].borrow_mut();
        if pipe.ending != Ending::Reset {
            pipe.ended = false;
        }
        pipe.ending = Ending::Reset;
        let retained = self.net.scheduler.random.below(pipe.flying.len() + 1);
        pipe.flying.truncate(retained);
    }

    fn deliver(&self, side: usize) {
        let scheduler = &self.net.scheduler;
        let mut pipe = self.pipes[side].borrow_mut();
        if pipe.flying.is_empty() {
            pipe.ended = true;
            if pipe.ending == Ending::Reset && scheduler.random.percent(50) {
                pipe.arrived.clear();
            }
            scheduler.note(|| format!("{}: {:?} arrives", pipe.name, pipe.ending));
            pipe.wake_reader();
            let is_reset = pipe.ending == Ending::Reset;
            drop(pipe);
            if is_reset {
                self.pipes[1 - side].borrow_mut().wake_writer();
            }
            return;
        }
        if pipe.deaf {
            pipe.flying.clear();
            pipe.wake_writer();
            drop(pipe);
            return self.reset(1 - side);
        }
        let count = self.piece(&pipe);
        let piece: Vec<u8> = pipe.flying.drain(..count).collect();
        pipe.delivered += count;
        scheduler.note(|| format!("{}: {count} arrive {}", pipe.name, excerpt(&piece)));
        pipe.arrived.extend_from_slice(&piece);
        pipe.wake_reader();
    }

    /// How many bytes arrive next.
    fn piece(&self, pipe: &Pipe) -> usize {
        let random = &self.net.scheduler.random;
        let crumbs = self.net.weather.crumbs > random.below(100) && pipe.delivered < 3000;
        let most = pipe.flying.len();
        let count = match random.below(3) {
            _ if crumbs => 1 + random.below(most.min(9)),
            0 => 1 + random.below(most),
            1 => 1 + random.size(most - 1 + 1).min(most - 1),
            _ => most,
        };
        let end = pipe.delivered + count;
        let splits_glued = pipe.glued.start < end && end < pipe.glued.end;
        if splits_glued { (pipe.glued.end - pipe.delivered).min(most) } else { count }
    }
}

/// The beginning of bytes, readable.
fn excerpt(bytes: &[u8]) -> String {
    let text: Vec<u8> = bytes.iter().take(72).copied().collect();
    text.escape_ascii().to_string()
}

impl End {
    fn incoming(&self) -> &RefCell<Pipe> {
        &self.wire.pipes[self.side]
    }

    fn outgoing(&self) -> &RefCell<Pipe> {
        &self.wire.pipes[1 - self.side]
    }

    /// Whether this operation has to be tried again, although it need not.
    fn stumbles(&self, cx: &Context<'_>) -> bool {
        let net = &self.wire.net;
        let stumbles = net.weather.again > 0 && net.scheduler.random.percent(net.weather.again);
        if stumbles {
            cx.waker().wake_by_ref();
        }
        stumbles
    }

    pub(crate) fn poll_read(&self, cx: &Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut pipe = self.incoming().borrow_mut();
        if pipe.deaf {
            return Poll::Ready(Err(ErrorKind::NotConnected.into()));
        }
        assert!(!room.is_empty(), "{}: a read without room looks like the end", pipe.name);
        if pipe.arrived.is_empty() {
            return match pipe.ending {
                Ending::End if pipe.ended => Poll::Ready(Ok(0)),
                Ending::Reset if pipe.ended => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
                _ => {
                    pipe.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
        }
        if self.stumbles(cx) {
            return Poll::Pending;
        }
        let count = room.len().min(pipe.arrived.len());
        room[..count].copy_from_slice(&pipe.arrived[..count]);
        pipe.arrived.drain(..count);
        pipe.wake_writer();
        Poll::Ready(Ok(count))
    }

    pub(crate) fn poll_write(&self, cx: &Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.stumbles(cx) {
            return Poll::Pending;
        }
        match self.try_write(slices) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.outgoing().borrow_mut().writer = Some(cx.waker().clone());
                Poll::Pending
            }
            done => Poll::Ready(done),
        }
    }

    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let is_reset = self.incoming().borrow().is_reset();
        let mut pipe = self.outgoing().borrow_mut();
        if is_reset || pipe.ending != Ending::None {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        let room = pipe.room.saturating_sub(pipe.flying.len() + pipe.arrived.len());
        if all > 0 && room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let random = &self.wire.net.scheduler.random;
        let mut count = all.min(room);
        if count > 1 && random.percent(10) {
            count = 1 + random.below(count);
        }
        let mut left = count;
        for slice in slices {
            let taken = left.min(slice.len());
            pipe.flying.extend_from_slice(&slice[..taken]);
            left -= taken;
        }
        Ok(count)
    }

    /// Says that nothing more will be written.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        let mut pipe = self.outgoing().borrow_mut();
        if pipe.ending != Ending::None {
            return Err(ErrorKind::NotConnected.into());
        }
        pipe.ending = Ending::End;
        Ok(())
    }

    /// Whether nothing has arrived, not even an end.
    pub(crate) fn is_quiet(&self) -> bool {
        let pipe = self.incoming().borrow();
        pipe.arrived.is_empty() && !pipe.ended
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(&self) {
        self.note(|| "resets".into());
        self.wire.reset(1 - self.side);
        self.deafen();
    }

    /// Ends the connection as dropping it does, although others may still hold this end.
    pub(crate) fn close(&self) {
        let unread = !self.incoming().borrow().arrived.is_empty();
        let outgoing = self.outgoing().borrow().ending;
        if unread && outgoing != Ending::Reset {
            // Closing with unread data resets (RFC 9112 section 9.6).
            self.note(|| "closes with unread data: reset".into());
            self.wire.reset(1 - self.side);
        } else if outgoing == Ending::None {
            self.outgoing().borrow_mut().ending = Ending::End;
        }
        self.deafen();
    }

    fn deafen(&self) {
        let mut pipe = self.incoming().borrow_mut();
        pipe.deaf = true;
        pipe.arrived.clear();
        pipe.wake_reader();
        pipe.wake_writer();
    }

    /// Writes bytes that all arrive in one piece, however little room there is.
    pub(crate) fn write_glued(&self, bytes: &[u8]) {
        let mut pipe = self.outgoing().borrow_mut();
        if pipe.ending == Ending::None && !self.incoming().borrow().is_reset() {
            let start = pipe.delivered + pipe.flying.len();
            pipe.glued = start..start + bytes.len();
            pipe.flying.extend_from_slice(bytes);
        }
    }

    pub(crate) fn note(&self, event: impl FnOnce() -> String) {
        let pipe = self.outgoing().borrow();
        self.wire.net.scheduler.note(|| format!("{}: {}", pipe.name, event()));
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.incoming().borrow().deaf {
            self.close();
        }
    }
}
