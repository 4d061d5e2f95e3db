//! Layout of pages in Chromium: nothing overflows, no texts overlap, colours are distinguishable, no errors
//! are logged.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::pages::pages;

/// One of these is installed by `scripts/deps.sh`.
const BROWSERS: [&str; 4] = ["chromium-headless-shell", "chromium", "google-chrome", "chromium-browser"];

/// Page widths and colour schemes for every report.
const SHEETS: [(u32, &str); 4] = [(1280, "light"), (1280, "dark"), (700, "light"), (360, "dark")];

/// Lays out the pages in frames, inspects each, and writes its findings into the document.
const PROBE: &str = include_str!("probe.js");

#[test]
fn pages_are_laid_out_without_a_flaw() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, page) in pages() {
        // Left in the folder for manual inspection.
        std::fs::write(folder.join(format!("{name}.page.html")), page).unwrap();
        let figures = page.matches("<figure>").count() as u64;
        let (dom, messages) = open(&folder, name, &harness(page));
        let seen = dom.split("<pre id=\"seen\">").nth(1).and_then(|rest| rest.split("</pre>").next());
        let seen = seen.unwrap_or_else(|| panic!("{name}: the probe left nothing behind: {messages}"));
        let seen: Value = serde_json::from_str(&unescaped(seen)).unwrap();
        let sheets = seen.as_array().unwrap();
        assert_eq!(sheets.len(), SHEETS.len());
        for (sheet, (width, scheme)) in sheets.iter().zip(SHEETS) {
            let flaws = sheet["flaws"].as_array().unwrap();
            assert!(flaws.is_empty(), "{name} at {width}, {scheme}: {flaws:#?}");
            assert_eq!(sheet["charts"].as_u64(), Some(figures), "{name} at {width}: charts that are seen");
            assert_eq!(sheet["dark"].as_bool(), Some(scheme == "dark"), "{name} at {width}, {scheme}");
        }
        let complaints: Vec<&str> = messages.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(complaints.is_empty(), "{name}: {complaints:#?}");
    }
}

/// A page with a frame per sheet. A frame has its own width, and the scheme of its element.
fn harness(page: &str) -> String {
    let source = page.replace('&', "&amp;").replace('"', "&quot;");
    let frames: Vec<String> = SHEETS
        .iter()
        .map(|(width, scheme)| {
            format!("<iframe style=\"width:{width}px;height:900px;border:0;color-scheme:{scheme}\" srcdoc=\"{source}\"></iframe>")
        })
        .collect();
    format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><title>probe</title>{}<script>{PROBE}</script>",
        frames.concat()
    )
}

/// Opens a page; returns the final document and the messages of the browser.
fn open(folder: &Path, name: &str, page: &str) -> (String, String) {
    let file = folder.join(format!("{name}.html"));
    std::fs::write(&file, page).unwrap();
    let (dom, messages) = (folder.join(format!("{name}.dom")), folder.join(format!("{name}.log")));
    let mut child = Command::new(browser())
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--enable-logging=stderr", "--v=0", "--dump-dom", "--timeout=240000"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&dom).unwrap())
        .stderr(std::fs::File::create(&messages).unwrap())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(300) {
            let _ = child.kill();
            panic!("{name}: the browser does not come to an end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    (
        std::fs::read_to_string(dom).unwrap(),
        String::from_utf8_lossy(&std::fs::read(messages).unwrap()).into_owned(),
    )
}

fn browser() -> PathBuf {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    let candidates = BROWSERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    candidates
        .into_iter()
        .find(|path| path.is_file())
        .expect("a Chromium: `scripts/deps.sh test` installs one")
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}
