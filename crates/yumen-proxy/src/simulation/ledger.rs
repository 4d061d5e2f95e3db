//! What was asked and answered, by the id that every request carries, and the promises broken.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::scheduler::Scheduler;
use super::wire::content;

/// A request as its client means it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) connection: u64,
    /// Its place on its connection.
    pub(crate) index: usize,
    pub(crate) method: &'static str,
    pub(crate) body_bytes: usize,
}

/// An answer as its endpoint means it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body_bytes: usize,
}

/// An answer as a client got it.
#[derive(Debug)]
pub(crate) struct Judged<'b> {
    /// The request it is for.
    pub(crate) id: u64,
    pub(crate) method: &'static str,
    pub(crate) status: u16,
    /// The request and the answer it names; the gateway's own name none.
    pub(crate) named: Option<u64>,
    pub(crate) number: u64,
    pub(crate) body: &'b [u8],
    pub(crate) is_whole: bool,
}

/// Statuses the gateway answers with by itself.
const OWN_STATUSES: [u16; 6] = [400, 408, 413, 502, 503, 504];

/// What of an answer may be under way: the windows of the gateway and of its client, the room of two connections, and
/// what the gateway holds between them, which is the least of it.
const HELD_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug)]
struct Entry {
    request: Asked,
    reached: u32,
    answers: Vec<Answer>,
}

/// The ledger of a world.
pub(crate) struct Ledger {
    pub(crate) scheduler: Rc<Scheduler>,
    entries: RefCell<BTreeMap<u64, Entry>>,
    /// From which index on a connection's requests must not be served.
    closed: RefCell<BTreeMap<u64, usize>>,
    broken: RefCell<Vec<String>>,
    /// Whether the route retries status 500, of any method.
    pub(crate) retries_500: Cell<bool>,
    connections: Cell<u64>,
    /// Bytes of answers that endpoints could send and clients did not read yet, where both count.
    unread: RefCell<BTreeMap<u64, usize>>,
    /// Complete answers of endpoints that clients got, of the gateway, and broken ones.
    pub(crate) passed: Cell<u64>,
    pub(crate) local: Cell<u64>,
    pub(crate) torn: Cell<u64>,
}

impl Ledger {
    pub(crate) fn new(scheduler: Rc<Scheduler>) -> Rc<Ledger> {
        Rc::new(Ledger {
            scheduler,
            entries: RefCell::default(),
            closed: RefCell::default(),
            broken: RefCell::default(),
            retries_500: Cell::new(false),
            connections: Cell::new(0),
            unread: RefCell::default(),
            passed: Cell::new(0),
            local: Cell::new(0),
            torn: Cell::new(0),
        })
    }

    pub(crate) fn connection(&self) -> u64 {
        self.connections.set(self.connections.get() + 1);
        self.connections.get()
    }

    /// Notes a broken promise.
    pub(crate) fn broken(&self, what: String) {
        self.scheduler.note(|| format!("BROKEN: {what}"));
        self.broken.borrow_mut().push(what);
    }

    pub(crate) fn all_broken(&self) -> Vec<String> {
        self.broken.borrow().clone()
    }

    /// Notes a request; gives its id.
    pub(crate) fn record(&self, request: Asked) -> u64 {
        let mut entries = self.entries.borrow_mut();
        let id = entries.len() as u64 + 1;
        entries.insert(id, Entry { request, reached: 0, answers: Vec::new() });
        id
    }

    pub(crate) fn request(&self, id: u64) -> Option<Asked> {
        self.entries.borrow().get(&id).map(|entry| entry.request.clone())
    }

    /// Notes that a head reached an endpoint.
    pub(crate) fn reached(&self, id: u64) {
        let mut entries = self.entries.borrow_mut();
        let Some(entry) = entries.get_mut(&id) else { return };
        entry.reached += 1;
        let (reached, method) = (entry.reached, entry.request.method);
        let refused = entry.answers.iter().filter(|answer| answer.status == 500).count() as u32;
        let retried = if self.retries_500.get() { refused } else { 0 };
        drop(entries);
        if method == "POST" && reached > 1 + retried {
            self.broken(format!("POST {id} reached endpoints {reached} times"));
        }
    }

    /// Compares what an endpoint got of a request body.
    pub(crate) fn got_body(&self, id: u64, body: &[u8], is_whole: bool) {
        let Some(request) = self.request(id) else { return };
        let expected = content(id, 0, request.body_bytes);
        let is_right = if is_whole { expected == body } else { expected.starts_with(body) };
        if !is_right {
            let (got, all) = (body.len(), expected.len());
            self.broken(format!("request {id}: an endpoint got {got} of {all} bytes, whole: {is_whole}"));
        }
    }

    /// Notes an answer; gives its number, the salt of its body.
    pub(crate) fn answer(&self, id: u64, answer: Answer) -> u64 {
        let mut entries = self.entries.borrow_mut();
        let Some(entry) = entries.get_mut(&id) else { return 0 };
        entry.answers.push(answer);
        self.unread.borrow_mut().insert(id, 0);
        entry.answers.len() as u64
    }

    pub(crate) fn answered(&self, id: u64, number: u64) -> Option<Answer> {
        let entries = self.entries.borrow();
        entries.get(&id)?.answers.get((number as usize).checked_sub(1)?).copied()
    }

    /// Notes that an endpoint could send so much more of an answer.
    pub(crate) fn sent(&self, id: u64, bytes: usize) {
        let mut unread = self.unread.borrow_mut();
        let unread = unread.entry(id).or_default();
        *unread += bytes;
        if *unread > HELD_BYTES_MAX {
            let unread = *unread;
            self.broken(format!(
                "{unread} bytes of the answer to {id} are on their way, {HELD_BYTES_MAX} allowed"
            ));
        }
    }

    /// Notes that a client read so much more of it.
    pub(crate) fn taken(&self, id: u64, bytes: usize) {
        if let Some(unread) = self.unread.borrow_mut().get_mut(&id) {
            *unread = unread.saturating_sub(bytes);
        }
    }

    /// Compares what a client got with what was meant for it. In a calm world only endpoints answer.
    pub(crate) fn check(&self, client: &str, got: &Judged<'_>, calm: bool) {
        let broken = |what: String| self.broken(format!("{client}: {what}"));
        let Judged { id, status, number, body, .. } = *got;
        let counter = match (got.is_whole, got.named.is_some()) {
            (false, _) => &self.torn,
            (true, true) => &self.passed,
            (true, false) => &self.local,
        };
        counter.set(counter.get() + 1);
        let Some(named) = got.named else {
            if !OWN_STATUSES.contains(&status) || calm {
                broken(format!("request {id} got an answer nobody made: {status}"));
            }
            return;
        };
        if named != id {
            return broken(format!("request {id} got the answer to {named}"));
        }
        let Some(answer) = self.answered(id, number) else {
            return broken(format!("request {id} got an answer that was never given: {number}"));
        };
        if answer.status != status {
            broken(format!("the answer to {id} has status {status}, not {}", answer.status));
        }
        let expected = content(id, number, answer.body_bytes);
        let is_right = match got.is_whole {
            true if got.method == "HEAD" => body.is_empty(),
            true => expected == body,
            false => expected.starts_with(body),
        };
        if !is_right {
            let (count, all) = (body.len(), expected.len());
            broken(format!("answer {number} to {id}: {count} of {all} bytes, whole: {}", got.is_whole));
        }
    }

    /// Nothing from this index on may be served on the connection.
    pub(crate) fn closed(&self, connection: u64, index: usize) {
        let mut closed = self.closed.borrow_mut();
        let known = closed.entry(connection).or_insert(index);
        *known = (*known).min(index);
    }

    /// Checks what can only be told at the end.
    pub(crate) fn check_end(&self) {
        let entries = self.entries.borrow();
        let closed = self.closed.borrow();
        for (id, entry) in entries.iter() {
            let bound = closed.get(&entry.request.connection);
            if entry.reached > 0 && bound.is_some_and(|bound| entry.request.index >= *bound) {
                self.broken(format!("request {id} was served on a connection that was to be closed"));
            }
        }
    }
}
