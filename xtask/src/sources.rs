//! The text of every file that git tracks or would add, read once for all rules.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The text files of the repository, by path from its root.
pub(crate) struct Sources {
    files: BTreeMap<String, String>,
}

impl Sources {
    /// Reads files that are tracked, or untracked and not ignored. Files that are not UTF-8 are left out.
    pub(crate) fn read(root: &Path) -> Result<Sources> {
        let listed = Command::new("git")
            // Untracked files too: a new file is checked before its first commit.
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git ls-files")?;
        ensure!(listed.status.success(), "git ls-files failed");
        let listed = String::from_utf8(listed.stdout)?;
        // A tracked file may be deleted in the work tree.
        let read = |path: &str| Some((path.to_owned(), std::fs::read_to_string(root.join(path)).ok()?));
        Ok(Sources { files: listed.lines().filter_map(read).collect() })
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Sources {
        let owned = |&(path, text): &(&str, &str)| (path.to_owned(), text.to_owned());
        Sources { files: files.iter().map(owned).collect() }
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// All files as (path, text).
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// All Rust files.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all().filter(|(path, _)| path.ends_with(".rs"))
    }
}

/// Whether a Rust file contains tests only.
pub(crate) fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == "tests.rs"
        || name.ends_with("_tests.rs")
        || name.starts_with("test_")
        || ["/tests/", "/benches/", "/examples/"].iter().any(|part| path.contains(part))
        || path.starts_with("fuzz/")
}
