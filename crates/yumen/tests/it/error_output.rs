//! Errors of wrong files, as `yumen check` prints them.
//!
//! `tests/errors` has an input and its expected output (`.txt`) per case. `YUMEN_UPDATE_ERRORS=1` writes the outputs;
//! read the difference before it is committed: each output must lead to the fix without another document.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::gateway::YUMEN;
use crate::harness::{Scratch, run};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors")
}

/// Output and exit status of `yumen check` on a case.
fn rendered(name: &str) -> String {
    let output = Command::new(YUMEN)
        .args(["check", name])
        .current_dir(folder())
        .env_remove("YUMEN_CONFIG")
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("an exit status");
    format!("{}{}exit status {code}\n", text(&output.stdout), text(&output.stderr))
}

#[test]
fn every_wrong_file_has_its_error() {
    let is_update = std::env::var_os("YUMEN_UPDATE_ERRORS").is_some();
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .expect("the cases")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| !name.ends_with(".txt"))
        .collect();
    names.sort();
    assert!(names.len() >= 30, "{names:?}");
    let mut differing = Vec::new();
    for name in &names {
        let expected = folder().join(format!("{name}.txt"));
        let rendered = rendered(name);
        if is_update {
            std::fs::write(&expected, &rendered).expect("the output is written");
        } else if std::fs::read_to_string(&expected).unwrap_or_default() != rendered {
            differing.push(format!("{name}:\n{rendered}"));
        }
    }
    assert!(differing.is_empty(), "not as expected:\n{}", differing.join("\n"));
}

#[test]
fn node_settings_have_places_too() {
    let scratch = Scratch::new();
    let path = scratch.write("yumen.yaml", "workers:\n  count: many\nstore: { kind: sqlite }\nlisen: []\n");
    let (code, _, err) = run(YUMEN, &["run", "--config", &path]);
    assert_eq!(code, 1, "{err}");
    for part in
        [":2:10: error: ", "expected integer, found string", ":3:16: error: ", "allowed: ", ":4:1: error: "]
    {
        assert!(err.contains(part), "{part:?} is not in\n{err}");
    }
}

#[test]
fn colors_are_for_terminals_unless_asked_for() {
    let case = folder().join("wrong_type.yaml").display().to_string();
    for (arguments, expected) in [
        (&["check", &case][..], false),
        (&["check", &case, "--color", "always"], true),
        (&["--color", "never", "check", &case], false),
    ] {
        let (_, out, _) = run(YUMEN, arguments);
        assert_eq!(out.contains('\u{1b}'), expected, "{arguments:?}: {out}");
    }
}

#[test]
fn json_has_places_and_errors() {
    let case = folder().join("wrong_type.yaml").display().to_string();
    let (code, out, _) = run(YUMEN, &["check", &case, "--json"]);
    let problems: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let place = &problems[0]["place"];
    assert_eq!((code, &place["line"], &place["column"]), (1, &4.into(), &15.into()), "{out}");
    let (code, out, _) = run(YUMEN, &["check", "/nowhere/routes.yaml", "--json"]);
    let failed: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &failed["status"]), (2, &2.into()), "{out}");
    assert!(failed["error"].as_str().is_some_and(|text| text.contains("/nowhere/routes.yaml")), "{out}");
}
