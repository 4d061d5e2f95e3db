//! What pages say, in all three formats.

use std::path::{Path, PathBuf};

use yumen_lab::record::Run;
use yumen_lab::report::{Format, read_run, render};

use super::synthetic::*;

#[test]
fn dump() {
    for run in all() {
        for (format, ending) in [(Format::Html, "html"), (Format::Markdown, "md"), (Format::Json, "json")] {
            let text = render(&run, format).unwrap();
            std::fs::write(format!("/tmp/report/out/{}.{ending}", run.scenario.name), text).unwrap();
        }
    }
}
