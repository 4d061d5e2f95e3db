//! A scripted endpoint: reads a request, answers from its id, and misbehaves as the seed says.

use std::rc::Rc;

use super::ledger::{Answer, Ledger};
use super::net::End;
use super::scheduler::Random;
use super::wire::{Framing, Head, Reader, Torn, chunked, content, pause, write};

/// Largest body in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 200_000;

/// Chances in percent of what endpoints do wrong; all 0 in calm worlds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manners {
    pub(crate) refuses: usize,
    pub(crate) never_accepts: usize,
    pub(crate) ends_early: usize,
    pub(crate) stalls: usize,
    pub(crate) answers_early: usize,
    pub(crate) breaks_answer: usize,
    pub(crate) closes_idle: usize,
    pub(crate) leaves_more: usize,
}

/// A connection to an endpoint, from its side.
pub(crate) struct Endpoint {
    end: Rc<End>,
    reader: Reader,
    ledger: Rc<Ledger>,
    manners: Manners,
}

enum Next {
    Request,
    Over,
}

impl Endpoint {
    pub(crate) fn new(end: End, ledger: Rc<Ledger>, manners: Manners) -> Endpoint {
        let end = Rc::new(end);
        Endpoint { reader: Reader::new(end.clone()), end, ledger, manners }
    }

    fn random(&self) -> &Random {
        &self.ledger.scheduler.random
    }

    pub(crate) async fn run(mut self) {
        while let Next::Request = self.serve().await {}
    }

    async fn nap(&self, us_max: usize) {
        let us = self.random().size(us_max) as u64;
        self.ledger.scheduler.sleep_us(us).await;
    }

    async fn serve(&mut self) -> Next {
        let head = match self.reader.head().await {
            Ok(head) => head,
            Err(Torn::Malformed(text)) => {
                self.ledger.broken(format!("an endpoint got a malformed head: {text}"));
                return Next::Over;
            }
            Err(_) => return Next::Over,
        };
        let id = head.word(1).strip_prefix("/r/").and_then(|id| id.parse().ok()).unwrap_or(0);
        if id == 0 || head.number("x-id") != Some(id) {
            self.ledger.broken(format!("an endpoint got a head of no request: {head:?}"));
            return Next::Over;
        }
        self.ledger.reached(id);
        self.end.note(|| format!("endpoint got {}", head.first));
        if self.random().percent(self.manners.ends_early) {
            return self.fall();
        }
        if self.random().percent(self.manners.stalls) {
            self.end.note(|| "endpoint hangs".into());
            while self.reader.more().await {}
            return Next::Over;
        }
        if self.random().percent(30) {
            self.nap(300_000).await;
        }
        self.interim(&head).await;
        if self.random().percent(self.manners.answers_early) {
            return self.answer_early(&head, id).await;
        }
        if !self.read_body(&head, id).await {
            return Next::Over;
        }
        self.answer(&head, id).await
    }

    /// Ends without an answer.
    fn fall(&self) -> Next {
        self.end.note(|| "endpoint falls".into());
        if self.random().percent(50) {
            self.end.reset();
        }
        Next::Over
    }

    async fn interim(&self, head: &Head) {
        if head.get("expect").is_some() && self.random().percent(80) {
            write(&self.end, b"HTTP/1.1 100 Continue\r\n\r\n").await;
        }
        if self.random().percent(10) {
            write(&self.end, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").await;
        }
    }

    async fn read_body(&mut self, head: &Head, id: u64) -> bool {
        match self.reader.body(head.framing(Framing::None)).await {
            Ok(body) => {
                self.ledger.got_body(id, &body, true);
                true
            }
            Err(Torn::Amid(part)) => {
                self.ledger.got_body(id, &part, false);
                false
            }
            Err(torn) => {
                self.ledger.broken(format!("request {id}: an endpoint got a broken body: {torn:?}"));
                false
            }
        }
    }

    /// Answers, then reads the body or does not.
    async fn answer_early(&mut self, head: &Head, id: u64) -> Next {
        let next = self.answer(head, id).await;
        if matches!(next, Next::Over) || self.random().percent(30) {
            return Next::Over;
        }
        match self.read_body(head, id).await {
            true => Next::Request,
            false => Next::Over,
        }
    }

    async fn answer(&mut self, head: &Head, id: u64) -> Next {
        let status = self.random().one(&[200, 200, 200, 200, 201, 204, 304, 404, 500]);
        let has_body = !matches!(status, 204 | 304);
        let body_bytes = if has_body { self.random().size(BODY_BYTES_MAX) } else { 0 };
        let number = self.ledger.answer(id, Answer { status, body_bytes });
        let is_head = head.word(0) == "HEAD";
        let mut framing = self.random().one(&[Framing::Length(body_bytes), Framing::Chunked, Framing::Close]);
        if !has_body {
            framing = Framing::None;
        }
        let closes = framing == Framing::Close || self.random().percent(10);
        let mut text = format!("HTTP/1.1 {status} Fine\r\nX-Id: {id}\r\nX-Answer: {number}\r\n");
        match framing {
            Framing::Length(length) => text.push_str(&format!("Content-Length: {length}\r\n")),
            Framing::Chunked => text.push_str("Transfer-Encoding: chunked\r\n"),
            _ => {}
        }
        text.push_str(if closes { "Connection: close\r\n\r\n" } else { "\r\n" });
        let mut bytes = text.into_bytes();
        let body = content(id, number, body_bytes);
        match framing {
            _ if is_head || !has_body => {}
            Framing::Chunked => bytes.extend(chunked(&body, 1 + self.random().size(70_000))),
            _ => bytes.extend(body),
        }
        self.send(&bytes, closes).await
    }

    async fn send(&mut self, bytes: &[u8], closes: bool) -> Next {
        let is_broken = self.random().percent(self.manners.breaks_answer);
        if is_broken {
            let cut = self.random().below(bytes.len());
            write(&self.end, &bytes[..cut]).await;
            self.end.note(|| format!("endpoint breaks its answer after {cut}"));
            // Without a reset an answer that ends with the connection would be whole.
            self.end.reset();
            return Next::Over;
        }
        let cut = self.random().below(bytes.len());
        if !write(&self.end, &bytes[..cut]).await {
            return Next::Over;
        }
        if self.random().percent(20) {
            self.nap(500_000).await;
        }
        let rest = &bytes[cut..];
        if !closes && self.random().percent(self.manners.leaves_more) {
            self.leave_more(rest).await;
        } else if !write(&self.end, rest).await || closes {
            return Next::Over;
        }
        if self.random().percent(self.manners.closes_idle) {
            match self.random().below(3) {
                0 => {}
                1 => pause().await,
                _ => self.nap(2_000_000).await,
            }
            self.end.note(|| "endpoint closes an idle connection".into());
            return Next::Over;
        }
        Next::Request
    }

    /// Ends an answer with more than belongs to it. Its first byte comes with the answer, so that the
    /// gateway can know; the rest could be taken for the next answer.
    async fn leave_more(&self, rest: &[u8]) {
        self.end.note(|| "endpoint leaves more behind its answer".into());
        self.end.write_glued(&[rest, b"!"].concat());
        if self.random().percent(50) {
            self.nap(100_000).await;
        }
        write(&self.end, b"HTTP/1.1 200 Poison\r\nContent-Length: 0\r\n\r\n").await;
    }
}
