//! The allowed dependencies between crates, and the restrictions of pure crates.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::Finding;
use crate::sources::{Sources, is_test};

/// A crate, and the workspace crates that it may depend on. Tests may depend on any crate.
const ALLOWED: &[(&str, &[&str])] = &[
    ("yumen-base", &[]),
    ("yumen-http", &["yumen-base"]),
    ("yumen-config", &["yumen-base", "yumen-http"]),
    ("yumen-plugin", &["yumen-base", "yumen-http", "yumen-config"]),
    ("yumen-actions", &["yumen-base", "yumen-http", "yumen-config", "yumen-plugin"]),
    ("yumen-snapshot", &["yumen-base", "yumen-http", "yumen-config", "yumen-plugin", "yumen-actions"]),
    ("yumen-proto-json", &[]),
    (
        "yumen-plugins",
        &["yumen-base", "yumen-http", "yumen-config", "yumen-plugin", "yumen-proto-json", "yumen-actions"],
    ),
    ("yumen-store", &["yumen-base", "yumen-http", "yumen-config", "yumen-plugin"]),
    ("yumen-redis", &["yumen-base", "yumen-plugin"]),
    ("yumen-outbound", &["yumen-base", "yumen-plugin"]),
    (
        "yumen-proxy",
        &[
            "yumen-base",
            "yumen-http",
            "yumen-config",
            "yumen-plugin",
            "yumen-snapshot",
            "yumen-redis",
            "yumen-actions",
        ],
    ),
    (
        "yumen-admin",
        &[
            "yumen-base",
            "yumen-http",
            "yumen-config",
            "yumen-plugin",
            "yumen-snapshot",
            "yumen-store",
            "yumen-admin-ui",
        ],
    ),
    ("yumen-admin-ui", &[]),
    ("yumen-kubernetes", &["yumen-base", "yumen-config", "yumen-plugin"]),
    ("yumen-import", &["yumen-base", "yumen-config", "yumen-plugin"]),
    ("yumen-kubernetes-client", &["yumen-base"]),
    ("yumen-load", &["yumen-base", "yumen-outbound"]),
    ("yumen-lab", &["yumen-base", "yumen-load"]),
];

/// Crates that all others may use, or that use all others: no row of their own.
const FREE: &[&str] = &["yumen", "yumen-test", "xtask"];

/// Crates without sockets, files, runtime, clock reads or randomness.
const PURE: &[&str] = &[
    "yumen-base",
    "yumen-http",
    "yumen-config",
    "yumen-plugin",
    "yumen-actions",
    "yumen-snapshot",
    "yumen-plugins",
    "yumen-import",
    "yumen-kubernetes",
    "yumen-proto-json",
    "yumen-admin-ui",
];

/// Dependencies that a pure crate must not have.
const IMPURE_CRATES: &[&str] =
    &["tokio", "mio", "rustix", "nix", "libc", "socket2", "rand", "getrandom", "fastrand", "async-std"];

/// Text that a pure crate must not contain. `std::net::IpAddr` and the like are plain values and allowed.
const IMPURE_WORDS: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::thread",
    "std::process",
    "std::env",
];

/// Checks the dependencies in `cargo metadata`.
pub(crate) fn check(metadata: &Value) -> Result<Vec<Finding>> {
    let packages = metadata["packages"].as_array().context("metadata without packages")?;
    let mut findings = Vec::new();
    // Packages of the workspace have no source.
    for package in packages.iter().filter(|package| package["source"].is_null()) {
        let name = package["name"].as_str().context("package without name")?;
        let dependencies = package["dependencies"].as_array().context("package without dependencies")?;
        // Build dependencies count too; tests may depend on any crate.
        let normal = dependencies.iter().filter(|dependency| dependency["kind"].as_str() != Some("dev"));
        for dependency in normal.filter_map(|dependency| dependency["name"].as_str()) {
            findings.extend(check_arrow(name, dependency));
        }
    }
    Ok(findings)
}

/// Checks one dependency of a workspace crate.
pub(crate) fn check_arrow(from: &str, to: &str) -> Option<Finding> {
    if PURE.contains(&from) && IMPURE_CRATES.contains(&to) {
        return Some(format!("{from}: pure crates must not depend on {to}"));
    }
    // Crates from the registry are the subject of `policy`.
    if FREE.contains(&from) || !(to == "yumen" || to.starts_with("yumen-")) {
        return None;
    }
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == from) else {
        // Refused by default, so that a new crate gets its place in the architecture.
        return Some(format!("{from}: a new crate needs a row in xtask/src/arrows.rs"));
    };
    (!allowed.contains(&to)).then(|| format!("{from}: must not depend on {to} (ARCHITECTURE.md, crates)"))
}

/// Clocks, files, sockets and randomness in pure crates, tests left out.
pub(crate) fn check_purity(sources: &Sources) -> Vec<Finding> {
    let pure = |path: &str| PURE.iter().any(|name| path.starts_with(&format!("crates/{name}/src/")));
    let mut findings = Vec::new();
    for (path, text) in sources.rust().filter(|(path, _)| pure(path) && !is_test(path)) {
        // Comments may name a clock.
        let code = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (number, line) in code {
            if let Some(word) = IMPURE_WORDS.iter().find(|word| line.contains(*word)) {
                findings.push(format!(
                    "{path}:{}: {word} in a pure crate; time, files and sockets come in through arguments",
                    number + 1
                ));
            }
        }
    }
    findings
}
