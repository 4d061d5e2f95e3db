//! Logs that are not read, or have no space: the gateway continues, counts the lost lines, and exits on
//! request.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Client, Gateway, Options, Scratch, Upstream, eventually};

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

/// A gateway with an access log at a path that `make` prepares, and that path.
fn logging(upstream: &Upstream, more: &str, make: impl FnOnce(&Path)) -> (Gateway, PathBuf) {
    let scratch = Scratch::new();
    let log = scratch.file("access.log");
    make(&log);
    let line = "$request_uri $status";
    let node =
        format!("{more}\nlogs: {{access: {{enabled: true, path: \"{}\", line: \"{line}\"}}}}", log.display());
    let routes = scratch.write("routes.yaml", upstream.everything().to_string());
    (Gateway::launch(scratch, &Options { node: &node, ..Options::default() }, &["--file", &routes]), log)
}

/// Sends requests with more log lines than a pipe holds.
fn fill(gateway: &Gateway) {
    let path = format!("/{}", "a".repeat(4000));
    let mut client = Client::connect(gateway.http);
    for _ in 0..100 {
        assert_eq!(client.get(&path).status, 200);
    }
}

fn ends_soon(gateway: &mut Gateway) {
    let started = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.wait(60).code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn an_access_log_that_nobody_reads_does_not_hold_the_end_up() {
    let upstream = Upstream::text("x");
    let (mut gateway, _) = logging(&upstream, "timeouts: {drain_ms: 500}", make_fifo);
    fill(&gateway);
    ends_soon(&mut gateway);
    let log = gateway.log();
    let stall_line = log.lines().find(|line| line.contains("access log stalled")).expect(&log);
    let lines: u64 = stall_line.rsplit_once("lines=").unwrap().1.trim().parse().expect(stall_line);
    assert!((1..=100).contains(&lines), "{stall_line}");
}

#[test]
fn a_pipe_gets_the_lines_that_were_written_before_it_had_a_reader() {
    let upstream = Upstream::text("x");
    let (gateway, log) = logging(&upstream, "", make_fifo);
    assert_eq!(gateway.get("/one").status, 200);
    // Opened for writing too, so that the reader gets no end of file before the first line.
    let reader = OpenOptions::new().read(true).write(true).open(log).unwrap();
    let mut lines = BufReader::new(reader).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "/one 200");
    assert_eq!(gateway.get("/two").status, 200);
    assert_eq!(lines.next().unwrap().unwrap(), "/two 200");
}

#[test]
fn a_log_of_its_own_that_nobody_reads_does_not_hold_the_end_up() {
    let upstream = Upstream::text("x");
    let scratch = Scratch::new();
    let stderr = scratch.file("stderr");
    make_fifo(&stderr);
    let mut pipe = OpenOptions::new().read(true).write(true).open(stderr).unwrap();
    rustix::io::ioctl_fionbio(&pipe, true).unwrap();
    let routes = scratch.write("routes.yaml", upstream.everything().to_string());
    let mut gateway = Gateway::launch(scratch, &Options::default(), &["--file", &routes]);
    while pipe.write(&[b'x'; 4096]).is_ok() {}
    while pipe.write(b"x").is_ok() {}
    gateway.hang_up();
    assert_eq!(gateway.get("/").status, 200);
    ends_soon(&mut gateway);
}

#[test]
fn lines_that_find_no_room_on_the_disk_are_counted_and_told_once() {
    let upstream = Upstream::text("x");
    let (gateway, _) = logging(&upstream, "", |log| std::os::unix::fs::symlink("/dev/full", log).unwrap());
    for _ in 0..3 {
        // A full batch each time.
        fill(&gateway);
    }
    eventually("all are counted", 10, || gateway.metric("yumen_access_log_dropped_total") >= 300.0);
    let log = gateway.log();
    assert_eq!(log.matches("access log write failed").count(), 1, "{log}");
}
