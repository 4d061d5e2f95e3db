//! A client that sends raw bytes and parses responses by RFC 9112.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// One connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// One response.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Status line and fields as received.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the gateway accepts");
        Client::of(stream)
    }

    pub(crate) fn of(stream: TcpStream) -> Client {
        stream.set_nodelay(true).expect("a socket option");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket option");
        stream.set_write_timeout(Some(Duration::from_secs(60))).expect("a socket option");
        Client { stream: BufReader::new(stream) }
    }

    /// Sends bytes. A closed connection shows at the next read.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        let _ = self.stream.get_mut().write_all(bytes.as_ref());
        self
    }

    /// Sends a GET on the kept connection and returns its response.
    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")).reply()
    }

    pub(crate) fn reply(&mut self) -> Reply {
        self.try_reply(false).expect("an answer")
    }

    /// The response to a HEAD request.
    pub(crate) fn reply_to_head(&mut self) -> Reply {
        self.try_reply(true).expect("an answer")
    }

    /// The next response, which may be an interim one.
    pub(crate) fn try_reply(&mut self, to_head: bool) -> std::io::Result<Reply> {
        let head = self.head()?;
        let status = head.get(9..12).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| std::io::Error::other(format!("no status in {head:?}")))?;
        let mut reply = Reply { status, head, body: Vec::new() };
        // These responses have no body (RFC 9112 §6.3).
        if to_head || status < 200 || status == 204 || status == 304 {
            return Ok(reply);
        }
        if reply.field("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            while self.chunk(&mut reply.body)? {}
        } else if let Some(length) = reply.field("content-length") {
            let length: u64 = length.parse().map_err(std::io::Error::other)?;
            let read = (&mut self.stream).take(length).read_to_end(&mut reply.body)?;
            if (read as u64) < length {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        } else {
            self.stream.read_to_end(&mut reply.body)?;
        }
        Ok(reply)
    }

    /// A head including its empty line.
    pub(crate) fn head(&mut self) -> std::io::Result<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(head)
    }

    /// Appends one chunk; returns false after the last.
    pub(crate) fn chunk(&mut self, body: &mut Vec<u8>) -> std::io::Result<bool> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let size = line.trim().split(';').next().unwrap_or_default();
        let size = u64::from_str_radix(size, 16).map_err(std::io::Error::other)?;
        (&mut self.stream).take(size).read_to_end(body)?;
        let mut end = String::new();
        self.stream.read_line(&mut end)?;
        // The trailer section is discarded.
        while size == 0 && !end.trim().is_empty() {
            end.clear();
            self.stream.read_line(&mut end)?;
        }
        Ok(size > 0)
    }

    /// Exactly `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("bytes");
        bytes
    }

    /// Whether the other side closes or resets the connection within this time.
    pub(crate) fn is_closed_within(&mut self, wait: Duration) -> bool {
        let wait = wait.max(Duration::from_secs(30));
        self.stream.get_mut().set_read_timeout(Some(wait)).expect("a socket option");
        let mut byte = [0; 1];
        match self.stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => {
                !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
            }
        }
    }

    /// Whether bytes of a response have arrived.
    pub(crate) fn has_bytes(&mut self) -> bool {
        self.stream.get_ref().set_nonblocking(true).expect("a socket");
        let has_bytes = self.stream.get_ref().peek(&mut [0]).is_ok();
        self.stream.get_ref().set_nonblocking(false).expect("a socket");
        has_bytes
    }

    pub(crate) fn finish_sending(&mut self) {
        let _ = self.stream.get_mut().shutdown(Shutdown::Write);
    }
}

impl Reply {
    /// The first field with this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// The value of the first field with this name in a head.
pub(crate) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
