//! `cargo run -p xtask -- tidy`: the project's rules that a compiler does not check.
//!
//! Reads the repository as text, as syntax trees and as `cargo metadata`; links to no crate of the product.

mod arrows;
mod cycles;
mod docs;
mod modules;
mod policy;
mod ratchet;
mod sizes;
mod sources;
mod style;
#[cfg(test)]
mod tests;
mod translations;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::sources::Sources;

/// One violation of a rule: the place, and the remedy.
type Finding = String;

fn main() -> ExitCode {
    let mut err = std::io::stderr().lock();
    let command = std::env::args().nth(1);
    if command.as_deref() != Some("tidy") {
        let _ = writeln!(err, "usage: cargo run -p xtask -- tidy");
        return ExitCode::from(2);
    }
    match tidy() {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            for finding in &findings {
                let _ = writeln!(err, "{finding}");
            }
            let _ = writeln!(err, "tidy: {} finding(s)", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            let _ = writeln!(err, "tidy: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// All findings of all rules in the repository that contains this crate.
fn tidy() -> Result<Vec<Finding>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask stands in the workspace")?;
    let sources = Sources::read(root)?;
    let metadata = policy::metadata(root)?;
    let mut findings = Vec::new();
    findings.extend(arrows::check(&metadata)?);
    findings.extend(arrows::check_purity(&sources));
    findings.extend(cycles::check(&sources));
    findings.extend(modules::check(&sources));
    findings.extend(sizes::check(&sources));
    findings.extend(style::check(&sources));
    findings.extend(docs::check(&sources, root));
    findings.extend(docs::check_bans(&sources));
    findings.extend(translations::check(&sources));
    findings.extend(policy::check(&metadata, sources.text("deny.toml").unwrap_or_default())?);
    Ok(findings)
}
