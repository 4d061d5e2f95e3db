//! Dependencies: licences, sources and duplicate versions, by the lists of `deny.toml`. cargo-deny reads the
//! same file and also checks advisories; building it takes minutes in CI, this takes none.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Finding;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The output of `cargo metadata` for the platform of releases.
pub(crate) fn metadata(root: &Path) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Licences that are not allowed, sources other than crates.io, duplicate versions without a reason.
pub(crate) fn check(metadata: &Value, deny: &str) -> Result<Vec<Finding>> {
    let allowed = list(deny, "allow");
    let skipped = list(deny, "skip");
    let mut findings = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in metadata["packages"].as_array().context("metadata without packages")? {
        let name = package["name"].as_str().context("package without name")?;
        // Crates of the workspace have no source.
        let Some(source) = package["source"].as_str() else { continue };
        if source != REGISTRY {
            findings.push(format!("{name}: comes from {source}, only crates.io is allowed"));
        }
        let license = package["license"].as_str().unwrap_or_default();
        if !licensed(license, &allowed) {
            findings.push(format!("{name}: licence \"{license}\" is not allowed by deny.toml"));
        }
        versions.entry(name).or_default().push(package["version"].as_str().unwrap_or_default());
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        if !skipped.contains(name) {
            findings.push(format!(
                "{name}: versions {}; unify or give a reason in deny.toml",
                versions.join(", ")
            ));
        }
    }
    Ok(findings)
}

/// The first string of each line of `key = [ … ]`: bare, or in a table such as `{ crate = "x", … }`.
pub(crate) fn list<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let opening = format!("{key} = [");
    let inside = text.lines().skip_while(|line| *line != opening).skip(1).take_while(|line| *line != "]");
    let entries = inside.filter(|line| !line.trim_start().starts_with('#'));
    entries
        .filter_map(|line| line.split('"').nth(1))
        .map(|name| name.split('@').next().unwrap_or(name))
        .collect()
}

/// Whether the allowed licences satisfy an SPDX expression. AND binds before OR.
pub(crate) fn licensed(expression: &str, allowed: &[&str]) -> bool {
    // The slash is an older form of OR.
    let expression = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    // Reversed, so that the next token is the last element.
    let mut tokens: Vec<&str> = expression.split_whitespace().rev().collect();
    // A remainder means that the expression was not understood, which refuses the licence.
    !tokens.is_empty() && any(&mut tokens, allowed) && tokens.is_empty()
}

fn any(tokens: &mut Vec<&str>, allowed: &[&str]) -> bool {
    let mut met = all(tokens, allowed);
    while tokens.pop_if(|token| *token == "OR").is_some() {
        // Without short circuit: the right side must be consumed.
        met |= all(tokens, allowed);
    }
    met
}

fn all(tokens: &mut Vec<&str>, allowed: &[&str]) -> bool {
    let mut met = one(tokens, allowed);
    while tokens.pop_if(|token| *token == "AND").is_some() {
        met &= one(tokens, allowed);
    }
    met
}

fn one(tokens: &mut Vec<&str>, allowed: &[&str]) -> bool {
    let Some(token) = tokens.pop() else { return false };
    if token == "(" {
        let met = any(tokens, allowed);
        return tokens.pop() == Some(")") && met;
    }
    if tokens.pop_if(|next| *next == "WITH").is_some() {
        let exception = tokens.pop().unwrap_or_default();
        let whole = format!("{token} WITH {exception}");
        return allowed.contains(&whole.as_str());
    }
    // `MPL-2.0+` includes later versions too; the allowed one is among them.
    allowed.contains(&token.trim_end_matches('+'))
}
