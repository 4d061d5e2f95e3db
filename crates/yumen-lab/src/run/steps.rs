//! Executes the steps of adapters: files, signals, requests.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::http;
use super::process::RunningProcess;
use crate::targets::GatewayStep;

/// Maximum time until an interface that listens also serves.
const READY_LIMIT: Duration = Duration::from_secs(60);
const READY_ATTEMPT_LIMIT: Duration = Duration::from_secs(2);

/// Writes the files of a configuration.
pub(super) fn write_files<'a>(
    folder: &Path,
    files: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<()> {
    for (name, text) in files {
        write(folder, name, text)?;
    }
    Ok(())
}

/// Executes steps in order, up to the first failure.
pub(super) fn carry_out(steps: &[GatewayStep], folder: &Path, process: &RunningProcess) -> Result<()> {
    steps.iter().try_for_each(|step| one(step, folder, process))
}

fn one(step: &GatewayStep, folder: &Path, process: &RunningProcess) -> Result<()> {
    match step {
        GatewayStep::Write { file, text } => write(folder, file, text),
        GatewayStep::Reload => process.reload(),
        GatewayStep::Ready { port, target } => ready(*port, target),
        GatewayStep::Http { method, port, target, headers, body } => {
            let answer = http::request(method, *port, target, headers, body)?;
            let body_start = String::from_utf8_lossy(&answer.body[..answer.body.len().min(500)]).into_owned();
            ensure!(answer.good(), "{method} {target}: {} {body_start}", answer.status);
            Ok(())
        }
        GatewayStep::Line { port, line, good } => {
            let answer = http::line(*port, line)?;
            let fine = answer.trim().is_empty() || good.iter().any(|word| answer.contains(word));
            ensure!(fine, "{line}: {}", answer.trim());
            Ok(())
        }
    }
}

/// Repeats the request until it succeeds.
fn ready(port: u16, target: &str) -> Result<()> {
    let end = Instant::now() + READY_LIMIT;
    loop {
        // A connection that was accepted too early may never be answered.
        let answer = http::request_within(READY_ATTEMPT_LIMIT, "GET", port, target, &[], "");
        match answer {
            Ok(answer) if answer.good() => return Ok(()),
            // Resets and errors are normal until the interface serves.
            _ if Instant::now() < end => std::thread::sleep(Duration::from_millis(50)),
            Ok(answer) => bail!("{target}: still {} after {READY_LIMIT:?}", answer.status),
            Err(error) => return Err(error.context(format!("not ready after {READY_LIMIT:?}"))),
        }
    }
}

/// Writes a file atomically: a reader sees the old or the new content.
fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    let parent = path.parent().context("a file in a folder")?;
    fs::create_dir_all(parent)?;
    // A rename replaces the file at once, so a gateway that watches it never reads a part.
    let fresh = folder.join(format!(".{}.new", name.replace('/', "-")));
    fs::write(&fresh, text).with_context(|| format!("{}", fresh.display()))?;
    fs::rename(&fresh, &path).with_context(|| format!("{}", path.display()))
}
