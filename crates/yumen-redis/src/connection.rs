//! One connection to one server, opened on demand and reopened after a failure.
//!
//! Commands are pipelined and answered in order. After a timeout the server counts as down: commands fail at
//! once, while the connection retries in the background. An outage therefore costs only the first few
//! requests their deadline.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf};
use tokio::sync::{Notify, oneshot};
use yumen_plugin::background::{RedisAddress, RedisFault, RedisResult, RedisTarget};
use yumen_plugin::plugin::LocalFuture;

use crate::connect::{self, Stream};
use crate::outages::RedisConnectKey;
use crate::sentinel::SentinelSet;
use crate::{RedisRuntime, outages, resp};

/// The most commands without a reply.
const WAITING_MAX: usize = 4096;
/// The first and the longest pause between attempts to connect, in milliseconds.
const PAUSE_MS: (u64, u64) = (50, 1000);
/// The time for which attempts continue after the last command, in milliseconds.
const TRY_MS: u64 = 60_000;

/// The server of a connection.
pub(crate) enum RedisPeer {
    /// A fixed server.
    Server(RedisAddress),
    /// The master that these sentinels name.
    Master(SentinelSet),
}

enum RedisConnectionState {
    /// There is no connection, and no command needs one.
    Idle,
    /// Commands are queued or in flight.
    Open,
    /// The server is down; commands fail at once.
    Down,
}

struct PendingReply {
    since_ms: u64,
    /// The receiver of the reply; `None` if the reply is discarded.
    reply_sender: Option<oneshot::Sender<RedisResult>>,
}

struct RedisConnectionInner {
    state: RedisConnectionState,
    /// Encoded commands that are not yet passed to the stream.
    out: Vec<u8>,
    /// Pending replies, in the order of the commands.
    waiting: VecDeque<PendingReply>,
    last_request_ms: u64,
    is_unreachable: bool,
}

/// A connection to one server, with its queue.
pub(crate) struct RedisConnection {
    tools: RedisRuntime,
    target: Rc<RedisTarget>,
    peer: RedisPeer,
    /// The identity of the connection in logs.
    key: RedisConnectKey,
    inner: RefCell<RedisConnectionInner>,
    requests: Notify,
}

/// The reason why a connection ended.
enum RedisConnectionEnd {
    /// The idle timeout passed.
    Idle,
    Broken(RedisFault),
}

impl RedisConnection {
    pub(crate) fn new(
        tools: &RedisRuntime,
        target: &Rc<RedisTarget>,
        peer: RedisPeer,
    ) -> Rc<RedisConnection> {
        let name = match &peer {
            RedisPeer::Server(address) => address.to_string(),
            RedisPeer::Master(_) => target.topology.to_string(),
        };
        let key = RedisConnectKey::new(name, target);
        let inner = RedisConnectionInner {
            state: RedisConnectionState::Idle,
            out: Vec::new(),
            waiting: VecDeque::new(),
            last_request_ms: 0,
            is_unreachable: false,
        };
        let inner = RefCell::new(inner);
        Rc::new(RedisConnection {
            tools: tools.clone(),
            target: target.clone(),
            peer,
            key,
            inner,
            requests: Notify::new(),
        })
    }

    /// The number of commands without a reply.
    pub(crate) fn waiting(&self) -> usize {
        self.inner.borrow().waiting.len()
    }

    /// The settings of the server.
    pub(crate) fn settings(&self) -> Rc<RedisTarget> {
        self.target.clone()
    }

    /// Whether the server is down.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.inner.borrow().state, RedisConnectionState::Down)
    }

    /// Queues the command that `encode` appends, at once.
    pub(crate) fn send(
        self: &Rc<Self>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> LocalFuture<'static, RedisResult> {
        self.send_after(&[], encode)
    }

    /// Queues `before` and directly behind it a command; the reply to `before` is discarded.
    pub(crate) fn send_after(
        self: &Rc<Self>,
        before: &[&str],
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> LocalFuture<'static, RedisResult> {
        let mut inner = self.inner.borrow_mut();
        // Before the refusals: a command that fails at once still keeps the attempts to connect alive.
        inner.last_request_ms = self.now_ms();
        if matches!(inner.state, RedisConnectionState::Down) {
            // At once: only the requests of the first deadline pay for an outage (decision 31).
            return Box::pin(std::future::ready(Err(RedisFault::Down)));
        }
        // The bound covers a server that accepts commands and does not reply.
        if inner.waiting.len() >= WAITING_MAX {
            return Box::pin(std::future::ready(Err(RedisFault::Busy)));
        }
        let since_ms = inner.last_request_ms;
        if !before.is_empty() {
            // Queued together with the command, since no other command may come between the two.
            resp::text_command(&mut inner.out, before);
            inner.waiting.push_back(PendingReply { since_ms, reply_sender: None });
        }
        encode(&mut inner.out);
        let (reply_sender, answer) = oneshot::channel();
        inner.waiting.push_back(PendingReply { since_ms, reply_sender: Some(reply_sender) });
        if matches!(inner.state, RedisConnectionState::Idle) {
            inner.state = RedisConnectionState::Open;
            // Connections are opened by the first command, so an unused target costs no socket.
            tokio::task::spawn_local(self.clone().drive());
        }
        drop(inner);
        self.requests.notify_one();
        Box::pin(async move {
            answer
                .await
                // The task of the connection ends without replies only with its worker.
                .unwrap_or_else(|_| Err(RedisFault::ConnectionLost("the worker is stopping".to_owned())))
        })
    }

    fn now_ms(&self) -> u64 {
        (self.tools.now)().mono_ms()
    }

    /// Opens the connection and reopens it while commands need it.
    async fn drive(self: Rc<Self>) {
        let mut pause_ms = PAUSE_MS.0;
        loop {
            match self.connect().await {
                Ok(stream) => {
                    // A connection ends the back-off, even if it breaks at once: it proves that the server is there.
                    pause_ms = PAUSE_MS.0;
                    self.tools.counters.connects.add(1);
                    self.reached();
                    match self.serve(stream).await {
                        RedisConnectionEnd::Idle => return,
                        // One broken connection does not mark the server as down; the next attempt decides.
                        RedisConnectionEnd::Broken(fault @ RedisFault::ConnectionLost(_)) => {
                            // The results of commands in flight are unknown, so they fail and are not repeated (decision 31).
                            self.fail(&fault, RedisConnectionState::Open)
                        }
                        RedisConnectionEnd::Broken(fault) => self.mark_unreachable(&fault),
                    }
                }
                Err(fault) => {
                    self.mark_unreachable(&fault);
                    (self.tools.sleep)(Duration::from_millis(pause_ms + self.jitter_ms(pause_ms))).await;
                    pause_ms = (pause_ms * 2).min(PAUSE_MS.1);
                }
            }
            // Without traffic no worker keeps calling a server that is gone.
            if self.goes_idle() {
                return;
            }
        }
    }

    /// A pseudo-random delay, so that workers and nodes do not reconnect at the same moment.
    fn jitter_ms(&self, pause_ms: u64) -> u64 {
        // The microseconds of the clock vary enough to spread the attempts.
        (self.tools.now)().mono_us % (pause_ms / 2).max(1)
    }

    async fn connect(&self) -> Result<Stream, RedisFault> {
        let timeout = Duration::from_millis(self.target.timeout_ms);
        let connected = async {
            match &self.peer {
                RedisPeer::Server(address) => connect::server(&self.tools, &self.target, address).await,
                RedisPeer::Master(sentinels) => sentinels.connect(&self.tools, &self.target).await,
            }
        };
        tokio::select! {
            connected = connected => connected,
            // The runtime of a worker has no clock of its own (decision 7).
            () = (self.tools.sleep)(timeout) => Err(RedisFault::Connect("no answer in time".to_owned())),
        }
    }

    fn reached(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.state = RedisConnectionState::Open;
        // Logged once per outage and not once per attempt.
        if std::mem::take(&mut inner.is_unreachable) {
            outages::end(&self.key, true);
        }
    }

    fn mark_unreachable(&self, fault: &RedisFault) {
        self.fail(fault, RedisConnectionState::Down);
        let mut inner = self.inner.borrow_mut();
        match std::mem::replace(&mut inner.is_unreachable, true) {
            false => outages::begin(&self.key, fault),
            true => outages::go_on(&self.key, fault),
        }
    }

    /// Fails all pending commands.
    fn fail(&self, fault: &RedisFault, then: RedisConnectionState) {
        let mut inner = self.inner.borrow_mut();
        inner.state = then;
        // Unsent commands fail like the others and must not reach the next connection.
        inner.out.clear();
        // Taken first: a receiver may send the next command, which borrows the state.
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        for reply_sender in waiting.into_iter().filter_map(|one| one.reply_sender) {
            // The receiver may have been dropped.
            let _ = reply_sender.send(Err(fault.clone()));
        }
    }

    /// Whether the last command is so long ago that attempts to connect end.
    fn goes_idle(&self) -> bool {
        let now_ms = self.now_ms();
        let mut inner = self.inner.borrow_mut();
        let is_needed = !inner.waiting.is_empty() || now_ms < inner.last_request_ms + TRY_MS;
        if !is_needed {
            inner.state = RedisConnectionState::Idle;
            if std::mem::take(&mut inner.is_unreachable) {
                outages::end(&self.key, false);
            }
        }
        !is_needed
    }

    /// Writes commands and reads replies until the connection breaks or is idle.
    async fn serve(&self, stream: Stream) -> RedisConnectionEnd {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let (mut inbox, mut outgoing, mut written) = (Vec::with_capacity(4096), Vec::new(), 0);
        let mut must_flush = false;
        let mut alarm = RedisTimer::new(self);
        loop {
            if written == outgoing.len() {
                outgoing.clear();
                written = 0;
                // Swapping reuses both allocations.
                std::mem::swap(&mut outgoing, &mut self.inner.borrow_mut().out);
            }
            alarm.follow(self);
            let must_write = must_flush || written < outgoing.len();
            let broken = tokio::select! {
                read = reader.read_buf(&mut inbox) => match read {
                    // Servers close idle connections.
                    // No command is lost, so the next one opens another connection.
                    Ok(0) if self.waiting() == 0 => return self.rest(),
                    Ok(0) => Some(RedisFault::ConnectionLost("closed by the server".to_owned())),
                    Ok(_) => self.take_replies(&mut inbox),
                    Err(error) => Some(RedisFault::ConnectionLost(error.to_string())),
                },
                wrote = push(&mut writer, &outgoing[written..]), if must_write => match wrote {
                    Ok(bytes) => {
                        written += bytes;
                        // A TLS stream may buffer accepted bytes.
                        must_flush = bytes > 0;
                        None
                    }
                    Err(error) => Some(RedisFault::ConnectionLost(error.to_string())),
                },
                // While bytes are being written, new commands are picked up in the next round anyway.
                () = self.requests.notified(), if !must_write => None,
                () = &mut alarm.rings => {
                    if self.is_idle() {
                        return self.rest();
                    }
                    alarm.is_set = false;
                    self.is_overdue().then_some(RedisFault::Timeout)
                }
            };
            if let Some(fault) = broken {
                return RedisConnectionEnd::Broken(fault);
            }
        }
    }

    fn rest(&self) -> RedisConnectionEnd {
        self.inner.borrow_mut().state = RedisConnectionState::Idle;
        RedisConnectionEnd::Idle
    }

    /// The deadline of the oldest pending command, or else of the idle timeout.
    fn due_ms(&self) -> u64 {
        let inner = self.inner.borrow();
        // Replies come in order, so the oldest command has the earliest deadline.
        match inner.waiting.front() {
            Some(oldest) => oldest.since_ms + self.target.timeout_ms,
            None => inner.last_request_ms + self.target.idle_ms,
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting() == 0 && self.due_ms() <= self.now_ms()
    }

    fn is_overdue(&self) -> bool {
        self.waiting() > 0 && self.due_ms() <= self.now_ms()
    }

    /// Distributes the complete replies in the inbox.
    fn take_replies(&self, inbox: &mut Vec<u8>) -> Option<RedisFault> {
        let mut taken = 0;
        let mut fault = None;
        while fault.is_none() {
            let (reply, length) = match resp::reply(&inbox[taken..]) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                // The boundaries of replies are lost, so no later bytes can be assigned.
                Err(resp::MalformedReply) => {
                    return Some(RedisFault::ConnectionLost("the server is not Redis".to_owned()));
                }
            };
            taken += length;
            let reply_sender = self.inner.borrow_mut().waiting.pop_front();
            // The order of replies is broken; a later reply could reach the wrong command.
            let Some(reply_sender) = reply_sender else {
                return Some(RedisFault::ConnectionLost("unexpected reply without a request".to_owned()));
            };
            self.tools.counters.round_trips.add(1);
            // A replica cannot run scripts that write: the client must look up the new master.
            if matches!(&reply, Err(error) if follows_another(error)) {
                // The reply is delivered first; the connection ends after it.
                fault = Some(RedisFault::ConnectionLost("it is a replica".to_owned()));
            }
            if let Some(reply_sender) = reply_sender.reply_sender {
                // The receiver may have been dropped.
                let _ = reply_sender.send(reply.map_err(RedisFault::Refused));
            }
        }
        inbox.drain(..taken);
        fault
    }
}

impl Drop for RedisConnection {
    fn drop(&mut self) {
        // The log must not count a connection that no longer exists.
        if self.inner.get_mut().is_unreachable {
            outages::end(&self.key, false);
        }
    }
}

/// Whether only a replica returns this error.
fn follows_another(error: &str) -> bool {
    ["READONLY", "MASTERDOWN"].iter().any(|code| error.starts_with(code))
}

/// Writes some of the bytes; without bytes, flushes the buffer of TLS.
async fn push(writer: &mut WriteHalf<Stream>, bytes: &[u8]) -> std::io::Result<usize> {
    match bytes {
        [] => writer.flush().await.map(|()| 0),
        _ => writer.write(bytes).await,
    }
}

/// One timer for the deadlines of a connection.
struct RedisTimer {
    rings: LocalFuture<'static, ()>,
    at_ms: u64,
    is_set: bool,
}

impl RedisTimer {
    fn new(link: &RedisConnection) -> RedisTimer {
        let mut alarm = RedisTimer { rings: Box::pin(std::future::pending()), at_ms: 0, is_set: false };
        alarm.follow(link);
        alarm
    }

    /// Sets the timer no later than the next deadline. A timer that fires early costs less than moving it
    /// with every command.
    fn follow(&mut self, link: &RedisConnection) {
        let due_ms = link.due_ms();
        // The alarm is early at most; it then finds the true deadline.
        if self.is_set && self.at_ms <= due_ms {
            return;
        }
        let wait_ms = due_ms.saturating_sub(link.now_ms()).max(1);
        self.rings = (link.tools.sleep)(Duration::from_millis(wait_ms));
        (self.at_ms, self.is_set) = (due_ms, true);
    }
}

#[cfg(test)]
mod tests;
