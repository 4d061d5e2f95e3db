//! Single HTTP requests to local programs. Blocking, without connection reuse or TLS.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Timeout of a response; a gateway that applies a large configuration is slow.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LabResponse {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl LabResponse {
    /// Whether the status is 2xx.
    pub(super) fn good(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Sends a request to a port on 127.0.0.1.
pub(super) fn request(
    method: &str,
    port: u16,
    target: &str,
    headers: &[(&str, String)],
    body: &str,
) -> Result<LabResponse> {
    request_within(LIMIT, method, port, target, headers, body)
}

/// Sends a request; each read and write may take `limit`.
pub(super) fn request_within(
    limit: Duration,
    method: &str,
    port: u16,
    target: &str,
    headers: &[(&str, String)],
    body: &str,
) -> Result<LabResponse> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    // A gateway that hangs must not hang the lab.
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() || method != "GET" {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    stream.write_all((head + "\r\n" + body).as_bytes())?;
    let mut received = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        if let Some(answer) = parse(&received, false)? {
            return Ok(answer);
        }
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => received.extend_from_slice(&piece[..count]),
            Err(error) => return Err(error).with_context(|| format!("{method} {target} on {address}")),
        }
    }
    parse(&received, true)?.with_context(|| format!("{method} {target} on {address}: the answer is cut off"))
}

/// Sends a line to a text interface and reads the response until the end of the connection.
pub(super) fn line(port: u16, line: &str) -> Result<String> {
    let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Parses a response; `None` if incomplete.
fn parse(bytes: &[u8], ended: bool) -> Result<Option<LabResponse>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&bytes[..end]);
    let rest = &bytes[end + 4..];
    let status = head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
    let Some(status) = status else { bail!("not an HTTP answer: {head}") };
    // The final response follows an interim one.
    if (100..200).contains(&status) {
        return parse(rest, ended);
    }
    let value = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        fields
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_ascii_lowercase())
    };
    let body = if value("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
        dechunk(rest)
    } else if let Some(length) = value("content-length").and_then(|length| length.parse::<usize>().ok()) {
        rest.get(..length).map(<[u8]>::to_vec)
    } else if matches!(status, 204 | 304) {
        Some(Vec::new())
    } else {
        ended.then(|| rest.to_vec())
    };
    Ok(body.map(|body| LabResponse { status, body }))
}

fn dechunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        // Chunk extensions follow a semicolon (RFC 9112 §7.1.1).
        let size = std::str::from_utf8(&rest[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        // Trailers are not read: the connection is not reused.
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(end + 2..end + 2 + size)?);
        rest = rest.get(end + 2 + size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, ended: bool, expected: Option<(u16, &str)>) {
        let expected = expected.map(|(status, body)| LabResponse { status, body: body.into() });
        assert_eq!(parse(text.as_bytes(), ended).unwrap(), expected, "{text}");
    }

    #[test]
    fn answers_are_read_by_length_by_chunks_and_to_the_end() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false, Some((200, "ok")));
        check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", true, None);
        check(
            "HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            false,
            Some((401, "ok")),
        );
        check("HTTP/1.1 200 OK\r\n\r\nok", true, Some((200, "ok")));
        check("HTTP/1.1 200 OK\r\n\r\nok", false, None);
        check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", false, Some((204, "")));
        check("HTTP/1.1 200", true, None);
        assert!(parse(b"SSH-2.0\r\n\r\n", false).is_err());
    }
}
