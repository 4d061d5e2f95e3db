//! Handover between processes, unnoticed by clients.

mod changes;
mod cluster;
mod endpoints;
mod http3;
mod load;
mod losses;
mod rollback;
mod service;
mod store;
mod succession;

use std::process::Output;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::gateway::YUMEN;
use crate::harness::{Gateway, eventually};

/// A gateway with processes that follow each other; all of them end with the value.
pub(crate) struct Line {
    pub(crate) gateway: Gateway,
    pids: Vec<u32>,
}

impl Line {
    pub(crate) fn of(gateway: Gateway) -> Line {
        let pids = vec![gateway.pid()];
        Line { gateway, pids }
    }

    /// The process that serves the status listener.
    pub(crate) fn serving(&self) -> u32 {
        let pid = self.gateway.status_json("/status")["pid"].as_u64().expect("a process id");
        pid as u32
    }

    /// Runs `yumen upgrade` with these arguments.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        std::process::Command::new(YUMEN)
            .current_dir(self.gateway.scratch.path())
            .args(["upgrade", "--config", "yumen.yaml"])
            .args(arguments)
            .output()
            .expect("the binary runs")
    }

    /// Upgrades successfully; returns the process that serves now.
    pub(crate) fn upgrade(&mut self) -> u32 {
        let mut output = None;
        eventually("the last predecessor has exited", 60, || {
            let attempt = self.ask(&[]);
            let is_refused = String::from_utf8_lossy(&attempt.stderr).contains("still drains");
            output = Some(attempt);
            !is_refused
        });
        self.note_upgrade(&output.expect("at least one attempt"))
    }

    /// Upgrades, and ends the drain of the last predecessor; returns the process that serves now.
    pub(crate) fn upgrade_ending_drain(&mut self) -> u32 {
        let output = self.ask(&["--end-drain"]);
        self.note_upgrade(&output)
    }

    fn note_upgrade(&mut self, output: &Output) -> u32 {
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{printed}{output:?}\n{}", self.gateway.log());
        let pid = printed.trim_end().rsplit_once("process ").expect("a number").1;
        let pid = pid.split(' ').next().unwrap().parse().expect("a number");
        assert!(!self.pids.contains(&pid), "{printed}");
        self.pids.push(pid);
        eventually("the new process answers", 10, || self.serving() == pid);
        pid
    }

    /// Waits until a predecessor has exited.
    pub(crate) fn wait_for_end_of(&mut self, pid: u32) {
        if pid == self.gateway.pid() {
            assert_eq!(self.gateway.wait(60).code(), Some(0), "{}", self.gateway.log());
        } else {
            eventually("the process has ended", 60, || !runs(pid));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // A successor of a failed test is known from its status only.
        if let Ok(serving) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.serving())) {
            self.pids.push(serving);
        }
        for pid in self.pids.iter().filter(|pid| **pid != self.gateway.pid() && runs(**pid)) {
            let _ = kill_process(Pid::from_raw(*pid as i32).expect("a process id"), Signal::KILL);
        }
    }
}

/// Whether a process exists and is not a zombie.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Starts on a resource file, with a data directory for upgrade requests.
pub(crate) fn start(resources: &Value, node: &str) -> Line {
    start_with(resources, &crate::harness::Options { node, ..Default::default() })
}

pub(crate) fn start_with(resources: &Value, options: &crate::harness::Options<'_>) -> Line {
    let scratch = crate::harness::Scratch::new();
    std::fs::create_dir(scratch.file("data")).expect("a directory");
    let routes = scratch.write("routes.yaml", resources.to_string());
    Line::of(Gateway::launch(scratch, options, &["--file", &routes]))
}
