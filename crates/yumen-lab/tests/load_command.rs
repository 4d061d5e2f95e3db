//! The binary in a shell: addresses on standard output, no progress in pipes, exit codes.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

use yumen_lab::load_command::read_summary;
use yumen_load::UpstreamStats;

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_yumen-bench")).args(args).output().unwrap()
}

/// An upstream process of one test.
struct Upstream {
    child: Child,
    address: String,
}

impl Upstream {
    fn start(options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_yumen-bench"))
            .args(["upstream", "--listen", "127.0.0.1:0"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Self { child, address }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn crossed_threshold_of_a_load_is_exit_code_1() {
    let upstream = Upstream::start(&["--error-share", "0.1"]);
    let url = format!("http://{}/1k", upstream.address);
    let check = |threshold: &str, status: i32, words: &str| {
        let output = bench(&["load", &url, "-n", "50", "-c", "5", "--fail-if", threshold]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(status) && message.contains(words), "{threshold}: {message}");
    };
    check("errors>10%", 0, "");
    check("errors>=10%", 1, "threshold errors>=10% crossed: 10.0");
    check("memory>1MiB", 2, "a load does not measure the gateway");
    check("p99>5", 2, "a unit is expected");
}

#[test]
fn result_is_written_to_the_output_and_nothing_else_to_a_pipe() {
    let upstream = Upstream::start(&["--error-share", "0.1"]);
    let url = format!("http://{}/1k", upstream.address);
    let json = bench(&["load", &url, "-n", "50", "-c", "5", "--json", "-"]);
    let summary = read_summary(std::str::from_utf8(&json.stdout).unwrap()).unwrap();
    assert_eq!((summary.totals.responses, summary.errors.bad_status, summary.connections.opened), (50, 5, 5));
    assert_eq!((json.status.code(), json.stderr.as_slice()), (Some(0), &b""[..]));

    let table = bench(&["load", &url, "-n", "50"]);
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(text.contains("statuses     200: 45, 500: 5\n"), "{text}");
    assert_eq!((table.status.code(), table.stderr.as_slice()), (Some(0), &b""[..]));

    let stats = upstream.get("/stats");
    let stats: UpstreamStats = serde_json::from_str(stats.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((stats.requests, stats.errors_on_purpose), (100, 10));
}

#[test]
fn a_run_that_cannot_be_made_says_why_and_fails() {
    for (args, reason) in [
        (&["load", "ftp://127.0.0.1/"][..], "the scheme is ftp"),
        (&["load", "http://127.0.0.1/", "-c", "1", "-t", "2"], "fewer connections than threads"),
        (&["load", "https://127.0.0.1/", "--ca", "/does/not/exist"], "/does/not/exist"),
        (&["load"], "<URLS>"),
        (&["upstream", "--stall", "1s"], "FIRST+FOR"),
    ] {
        let output = bench(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
    }
}

#[test]
fn steps_of_a_ramp_are_written_for_plotting() {
    let upstream = Upstream::start(&[]);
    let url = format!("http://{}/hello", upstream.address);
    let ramp = ["--ramp", "50:100:50", "--calls", "2", "--connections-per-step", "10", "--tsv", "-"];
    let output = bench(&[&["load", &url][..], &ramp].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let first: Vec<_> = text.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(first, ["dem_req_rate", "100", "200"], "{text}");
    assert!(text.lines().skip(1).all(|line| line.ends_with("\t0.00")), "{text}");
}

#[test]
fn a_run_in_which_nothing_was_answered_fails_and_shows_what_it_has() {
    // Port 1 has no listener.
    let load = ["load", "--duration", "100ms", "--connections", "1", "http://127.0.0.1:1/"];
    let output = bench(&load);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("no request was answered"), "{stderr}");
    assert!(!output.stdout.is_empty());
}

#[test]
fn rounds_that_never_end_cannot_be_asked_for() {
    for (option, value) in [("--rounds", "0"), ("--seconds", "0"), ("--seconds", "-1"), ("--seconds", "inf")]
    {
        let output = bench(&["run", "keepalive", &format!("{option}={value}")]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(option), "{option} {value}: {stderr}");
    }
}
