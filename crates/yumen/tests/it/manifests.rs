//! Commands on Kubernetes manifests: check, explain, plan.
//!
//! Each folder of `tests/manifests` has manifests and `commands.txt`: commands, each with its output and exit status.
//! `YUMEN_UPDATE_MANIFESTS=1` writes the outputs; read the difference before it is committed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::gateway::YUMEN;

fn folders() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests");
    let entries = std::fs::read_dir(folder).expect("the cases");
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    folders.sort();
    folders
}

/// The commands of a case with their outputs.
fn transcript(folder: &Path, commands: &str) -> String {
    let mut transcript = String::new();
    for command in commands.lines().filter_map(|line| line.strip_prefix("$ yumen ")) {
        let output = Command::new("sh")
            .args(["-c", &format!("\"$YUMEN\" {command}")])
            .current_dir(folder)
            .env("YUMEN", YUMEN)
            .env_remove("YUMEN_CONFIG")
            .stdin(Stdio::null())
            .output()
            .expect("the shell runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let code = output.status.code().expect("an exit status");
        transcript.push_str(&format!("$ yumen {command}\n{err}{out}exit status {code}\n\n"));
    }
    transcript
}

#[test]
fn commands_on_manifests_print_the_expected_output() {
    let is_update = std::env::var_os("YUMEN_UPDATE_MANIFESTS").is_some();
    let folders = folders();
    assert!(folders.len() >= 5, "{folders:?}");
    let mut differing = Vec::new();
    for folder in folders {
        let path = folder.join("commands.txt");
        let expected = std::fs::read_to_string(&path).expect("the commands");
        let found = transcript(&folder, &expected);
        assert!(!found.is_empty(), "{}: no command", path.display());
        if is_update {
            std::fs::write(&path, &found).expect("the output is written");
        } else if expected != found {
            differing.push(format!("{}:\n{found}", path.display()));
        }
    }
    assert!(differing.is_empty(), "not as expected:\n{}", differing.join("\n"));
}
