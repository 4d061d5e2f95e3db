//! Documents refer to existing names only, and no file names the machine on which it was written.

use std::collections::BTreeSet;
use std::path::Path;

use crate::Finding;
use crate::sources::Sources;

/// Documents in which every backticked crate or type must exist.
const CHECKED: &[&str] = &["ARCHITECTURE.md"];

/// Words that no file may contain, in halves so that this file does not.
const BANNED: &[(&str, &str)] = &[("/wo", "rk/"), ("../sha", "red/"), ("artifac", "tory")];

/// Backticked names that do not exist, and broken links.
pub(crate) fn check(sources: &Sources, root: &Path) -> Vec<Finding> {
    let known = known_names(sources);
    let mut findings = Vec::new();
    for (path, text) in sources.all().filter(|(path, _)| CHECKED.contains(path)) {
        for name in backticked(text).filter(|name| is_claim(name) && !known.contains(name)) {
            findings.push(format!("{path}: `{name}` is not in the code"));
        }
    }
    for (path, text) in sources.all().filter(|(path, _)| path.ends_with(".md")) {
        let folder = root.join(path).parent().map(Path::to_path_buf).unwrap_or_default();
        for link in links(text).filter(|link| !folder.join(link).exists()) {
            findings.push(format!("{path}: link to {link}, which does not exist"));
        }
    }
    findings
}

/// Words that belong to one machine or workplace.
pub(crate) fn check_bans(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in sources.all() {
        for (left, right) in BANNED {
            let word = format!("{left}{right}");
            if let Some(line) = text.lines().position(|line| line.contains(&word)) {
                findings.push(format!("{path}:{}: names {word}", line + 1));
            }
        }
    }
    findings
}

/// Crates, and the types, traits, aliases and variants of the workspace.
fn known_names(sources: &Sources) -> BTreeSet<&str> {
    let mut known = BTreeSet::new();
    for (path, text) in sources.all() {
        if let Some(name) = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()) {
            known.insert(name);
        }
        if path.ends_with(".rs") {
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            known.extend(
                code.flat_map(words).filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase())),
            );
        }
    }
    known
}

/// The words of a text, as identifiers are separated.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Whether a backticked name looks like a crate or a type of the workspace: `yumen-http`, `RequestHead`.
fn is_claim(name: &str) -> bool {
    let camel = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.contains(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_alphanumeric());
    camel || name.strip_prefix("yumen-").is_some_and(|rest| rest.chars().all(|c| c.is_ascii_lowercase()))
}

/// The texts in single backticks, without fenced blocks.
pub(crate) fn backticked(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2))
}

/// Relative link targets without their anchors, outside fenced blocks.
pub(crate) fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    let targets = prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| {
            !target.contains("://") && !target.starts_with(['#', '<']) && !target.starts_with("mailto:")
        })
        .filter_map(|target| target.split('#').next())
}
