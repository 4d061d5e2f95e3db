//! A scripted client: asks over one connection and judges every answer against the ledger.

use std::cell::Cell;
use std::rc::Rc;

use super::endpoint::BODY_BYTES_MAX;
use super::ledger::{Asked, Judged, Ledger};
use super::net::End;
use super::scheduler::{Gate, Random};
use super::wire::{Framing, Head, Reader, Torn, chunked, content, write};

/// Chances in percent of what clients do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Habits {
    pub(crate) pipelines: usize,
    pub(crate) sends_close: usize,
    pub(crate) speaks_http10: usize,
    pub(crate) expects: usize,
    pub(crate) vanishes: usize,
    pub(crate) dawdles: usize,
    pub(crate) half_closes: usize,
    /// That a client of many streams rests between pieces of an answer.
    pub(crate) slow_reads: usize,
    /// Whether every request must get an endpoint's answer.
    pub(crate) calm: bool,
}

/// One request to send.
struct Request {
    id: u64,
    method: &'static str,
    http10: bool,
    chunked: bool,
    expects: bool,
    closes: bool,
    waits_first: bool,
    body_bytes: usize,
}

impl Request {
    fn head(&self) -> String {
        let version = if self.http10 { "1.0" } else { "1.1" };
        let mut text =
            format!("{} /r/{id} HTTP/{version}\r\nHost: sim\r\nX-Id: {id}\r\n", self.method, id = self.id);
        if self.chunked {
            text.push_str("Transfer-Encoding: chunked\r\n");
        } else if self.body_bytes > 0 || self.method == "POST" {
            text.push_str(&format!("Content-Length: {}\r\n", self.body_bytes));
        }
        if self.expects {
            text.push_str("Expect: 100-continue\r\n");
        }
        match (self.closes, self.http10) {
            (true, false) => text.push_str("Connection: close\r\n"),
            (false, true) => text.push_str("Connection: keep-alive\r\n"),
            _ => {}
        }
        text.push_str("\r\n");
        text
    }
}

/// How far both halves of a client are.
#[derive(Default)]
struct Progress {
    /// Requests begun and answered; both are as large as can be when the connection is over.
    begun: Gate,
    answered: Gate,
    continued: Gate,
    vanished: Cell<bool>,
}

/// Asks over one connection; done when it is over.
pub(crate) async fn run(ledger: Rc<Ledger>, end: End, habits: Habits, name: String) {
    let end = Rc::new(end);
    let connection = ledger.connection();
    let plan = Rc::new(plan(&ledger, habits, connection));
    let progress = Rc::new(Progress::default());
    let writer = Writer {
        end: end.clone(),
        ledger: ledger.clone(),
        plan: plan.clone(),
        progress: progress.clone(),
        habits,
    };
    ledger.scheduler.spawn(format!("{name} writer"), writer.run());
    let mut reading =
        Reading { reader: Reader::new(end.clone()), ledger, plan, progress, habits, connection, name };
    reading.run().await;
    reading.progress.answered.raise(usize::MAX);
    reading.progress.continued.raise(usize::MAX);
    end.close();
}

fn plan(ledger: &Ledger, habits: Habits, connection: u64) -> Vec<Request> {
    let random = &ledger.scheduler.random;
    let count = 1 + random.size(6);
    let pipelines = random.percent(habits.pipelines);
    let mut is_over = false;
    let mut plan = Vec::new();
    for index in 0..count {
        let method = random.one(&["GET", "GET", "HEAD", "POST", "POST", "PUT"]);
        let has_body = matches!(method, "POST" | "PUT");
        let body_bytes = if has_body { random.size(BODY_BYTES_MAX) } else { 0 };
        let http10 = random.percent(habits.speaks_http10);
        let closes = random.percent(habits.sends_close);
        let id = ledger.record(Asked { connection, index, method, body_bytes });
        plan.push(Request {
            id,
            method,
            http10,
            chunked: has_body && !http10 && random.percent(50),
            expects: has_body && body_bytes > 0 && !http10 && random.percent(habits.expects),
            closes,
            waits_first: !pipelines || random.percent(20),
            body_bytes,
        });
        if closes {
            ledger.closed(connection, index + 1);
            is_over = true;
        }
        // In a calm world nobody asks beyond an end that was agreed on.
        if is_over && (habits.calm || random.percent(70)) {
            break;
        }
    }
    plan
}

struct Writer {
    end: Rc<End>,
    ledger: Rc<Ledger>,
    plan: Rc<Vec<Request>>,
    progress: Rc<Progress>,
    habits: Habits,
}

impl Writer {
    async fn run(self) {
        let random = &self.ledger.scheduler.random;
        let vanishes_at = random.percent(self.habits.vanishes).then(|| random.below(self.plan.len()));
        for (index, request) in self.plan.iter().enumerate() {
            if request.waits_first {
                self.progress.answered.reached(index).await;
            }
            if random.percent(20) {
                self.ledger.scheduler.sleep_us(random.size(1_000_000) as u64).await;
            }
            if self.progress.answered.get() == usize::MAX {
                return;
            }
            self.progress.begun.raise(index + 1);
            let bytes = self.bytes(request);
            let head_bytes = request.head().len();
            if vanishes_at == Some(index) {
                return self.vanish(&bytes).await;
            }
            let rest = if request.expects { head_bytes } else { random.below(bytes.len()) };
            if !write(&self.end, &bytes[..rest]).await {
                return;
            }
            if request.expects {
                self.lose_patience(index);
                self.progress.continued.reached(index + 1).await;
            } else if random.percent(self.habits.dawdles) {
                self.ledger.scheduler.sleep_us(random.size(4_000_000) as u64).await;
            }
            if !write(&self.end, &bytes[rest..]).await {
                return;
            }
        }
        if random.percent(self.habits.half_closes) {
            // The other side may have ended it all already.
            let _ = self.end.shutdown();
        }
    }

    /// Most clients send their body after a while, leave or no leave (RFC 9110 section 10.1.1).
    fn lose_patience(&self, index: usize) {
        let scheduler = self.ledger.scheduler.clone();
        if !self.habits.calm && scheduler.random.percent(20) {
            return;
        }
        let progress = self.progress.clone();
        self.ledger.scheduler.spawn("patience".into(), async move {
            scheduler.sleep_us(1_000_000).await;
            progress.continued.raise(index + 1);
        });
    }

    fn bytes(&self, request: &Request) -> Vec<u8> {
        let mut bytes = request.head().into_bytes();
        let body = content(request.id, 0, request.body_bytes);
        if request.chunked {
            bytes.extend(chunked(&body, 1 + self.ledger.scheduler.random.size(70_000)));
        } else {
            bytes.extend(body);
        }
        bytes
    }

    async fn vanish(&self, bytes: &[u8]) {
        let random = &self.ledger.scheduler.random;
        write(&self.end, &bytes[..random.below(bytes.len() + 1)]).await;
        if random.percent(50) {
            self.ledger.scheduler.sleep_us(random.size(1_000_000) as u64).await;
        }
        self.end.note(|| "client vanishes".into());
        self.progress.vanished.set(true);
        if random.percent(50) { self.end.reset() } else { self.end.close() }
    }
}

struct Reading {
    reader: Reader,
    ledger: Rc<Ledger>,
    plan: Rc<Vec<Request>>,
    progress: Rc<Progress>,
    habits: Habits,
    connection: u64,
    name: String,
}

enum After {
    Next,
    Closes,
    Over,
}

impl Reading {
    fn broken(&self, what: &str) {
        self.ledger.broken(format!("{}: {what}", self.name));
    }

    async fn run(&mut self) {
        for index in 0..self.plan.len() {
            match self.answer(index).await {
                After::Next => self.progress.answered.raise(index + 1),
                After::Closes => {
                    self.ledger.closed(self.connection, index + 1);
                    return self.expect_end().await;
                }
                After::Over => {
                    if self.habits.calm {
                        self.broken(&format!("request {} got no whole answer", self.plan[index].id));
                    }
                    return;
                }
            }
        }
        if self.random().percent(50) {
            self.expect_end().await;
        }
    }

    fn random(&self) -> &Random {
        &self.ledger.scheduler.random
    }

    async fn expect_end(&mut self) {
        if self.reader.has_waiting() || self.reader.more().await {
            self.broken(&format!("something after the last answer: {}", self.reader.waiting_text()));
        }
    }

    /// Reads the answer to a request, interim ones before.
    async fn answer(&mut self, index: usize) -> After {
        loop {
            let head = match self.reader.head().await {
                Ok(head) => head,
                Err(Torn::Malformed(text)) => {
                    self.broken(&format!("a malformed head: {text}"));
                    return After::Over;
                }
                Err(_) => return After::Over,
            };
            let status: u16 = head.word(1).parse().unwrap_or(0);
            if self.progress.begun.get() <= index && status != 408 {
                self.broken(&format!("an answer before its request: {head:?}"));
            }
            if status >= 200 {
                return self.final_answer(index, &head, status).await;
            }
            if self.plan[index].http10 {
                self.broken("an interim answer for HTTP/1.0");
            }
            if status == 100 {
                self.progress.continued.raise(index + 1);
            }
        }
    }

    async fn final_answer(&mut self, index: usize, head: &Head, status: u16) -> After {
        let request = &self.plan[index];
        let (id, http10, closes) = (request.id, request.http10, request.closes);
        // Whoever sent no whole head did not say HEAD.
        let is_head = request.method == "HEAD" && status != 408;
        let has_body = !is_head && !matches!(status, 204 | 304);
        let framing = if has_body { head.framing(Framing::Close) } else { Framing::None };
        self.ledger.scheduler.note(|| format!("{}: answer {status} to {id}, {framing:?}", self.name));
        let ends =
            framing == Framing::Close || head.sends_close() || (http10 && head.get("connection").is_none());
        if closes && !ends {
            self.broken(&format!("the answer to {id} does not say that it is the last"));
        }
        if http10 && framing == Framing::Chunked {
            self.broken("chunks for HTTP/1.0");
        }
        // A client that got its answer sends its body all the same, or has to end.
        self.progress.continued.raise(index + 1);
        let body = match self.reader.body(framing).await {
            Ok(body) => body,
            Err(Torn::Malformed(text)) => {
                self.broken(&format!("the body of the answer to {id}: {text}"));
                return After::Over;
            }
            Err(Torn::Amid(part)) => {
                self.check(index, head, status, &part, false);
                return After::Over;
            }
            Err(Torn::Nothing) => return After::Over,
        };
        if self.progress.vanished.get() {
            return After::Over;
        }
        self.check(index, head, status, &body, true);
        if ends { After::Closes } else { After::Next }
    }

    fn check(&self, index: usize, head: &Head, status: u16, body: &[u8], is_whole: bool) {
        let request = &self.plan[index];
        let got = Judged {
            id: request.id,
            method: request.method,
            status,
            named: head.number("x-id"),
            number: head.number("x-answer").unwrap_or(0),
            body,
            is_whole,
        };
        self.ledger.check(&self.name, &got, self.habits.calm);
    }
}
