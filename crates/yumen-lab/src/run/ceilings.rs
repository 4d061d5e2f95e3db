//! Ceiling of the link: payloads of exact sizes in both directions, without HTTP and with `TCP_NODELAY`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::process::pin_this_thread;
use crate::record::{CpuPinning, MeasuredCeiling};

/// Measures the link with one thread per side; each side serves its connections in turn.
pub(super) fn link(
    connections: usize,
    request_bytes: usize,
    response_bytes: usize,
    duration: Duration,
    pinning: &CpuPinning,
) -> Result<MeasuredCeiling> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    // All connections wait in the listen queue before the first accept, so neither side blocks the other.
    let connect = |_| -> Result<TcpStream> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let mut streams: Vec<TcpStream> = (0..connections).map(connect).collect::<Result<_>>()?;
    let server = || -> Result<()> {
        pin_this_thread(&pinning.upstream)?;
        let mut streams = Vec::new();
        for _ in 0..connections {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        answer_all(&mut streams, request_bytes, response_bytes)
    };
    let client = move || -> Result<(u64, Duration, Vec<u64>)> {
        pin_this_thread(&pinning.generator)?;
        ask_all(&mut streams, request_bytes, response_bytes, duration)
    };
    let (count, took, mut round_trips) = std::thread::scope(|scope| {
        let serving = scope.spawn(server);
        // The client first: its streams close when it ends, and the server ends by that.
        let answered = scope.spawn(client).join();
        let served = serving.join();
        answered.ok().context("the asking thread panicked")?.and_then(|answered| {
            served.ok().context("the serving thread panicked")??;
            Ok(answered)
        })
    })?;
    round_trips.sort_unstable();
    Ok(MeasuredCeiling {
        name: "link".to_owned(),
        connections,
        request_bytes: request_bytes as u64,
        response_bytes: response_bytes as u64,
        per_second: count as f64 / took.as_secs_f64(),
        p50_ns: round_trips.get(round_trips.len() / 2).copied().unwrap_or(0),
    })
}

/// Answers requests until the peer closes.
fn answer_all(streams: &mut [TcpStream], request_bytes: usize, response_bytes: usize) -> Result<()> {
    let mut request = vec![0; request_bytes];
    let response = vec![b'x'; response_bytes];
    loop {
        // All requests before the first response, so that all connections are in use, as with a gateway.
        for stream in streams.iter_mut() {
            match stream.read_exact(&mut request) {
                Ok(()) => stream.write_all(&response)?,
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn ask_all(
    streams: &mut [TcpStream],
    request_bytes: usize,
    response_bytes: usize,
    duration: Duration,
) -> Result<(u64, Duration, Vec<u64>)> {
    let request = vec![b'x'; request_bytes];
    let mut response = vec![0; response_bytes];
    let (mut count, mut round_trips) = (0, Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < duration {
        let sent = Instant::now();
        for stream in streams.iter_mut() {
            stream.write_all(&request)?;
        }
        for stream in streams.iter_mut() {
            stream.read_exact(&mut response)?;
            round_trips.push(sent.elapsed().as_nanos() as u64);
        }
        count += streams.len() as u64;
    }
    Ok((count, begun.elapsed(), round_trips))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_carries_payloads_of_the_exact_sizes() {
        let ceiling = link(4, 81, 181, Duration::from_millis(50), &CpuPinning::default()).unwrap();
        assert_eq!((ceiling.request_bytes, ceiling.response_bytes, ceiling.connections), (81, 181, 4));
        assert!(ceiling.per_second > 0.0 && ceiling.p50_ns > 0);
    }
}
