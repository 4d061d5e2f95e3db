//! Budgets of the dashboard, and the agreement of its texts.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Bytes after compression that the first page may load.
const FIRST_BYTES_MAX: usize = 60_000;
/// Bytes after compression of all files.
const ALL_BYTES_MAX: usize = 200_000;
/// Files that the first page loads besides the static imports of `main.js`, in the language with the longer texts.
const FIRST: [&str; 7] = [
    "index.html",
    "style.css",
    "icon.svg",
    "app/main.js",
    "pages/overview.js",
    "vendor/uplot.js",
    "text/zh.js",
];

fn text(path: &str) -> String {
    let asset = asset(path).unwrap_or_else(|| panic!("{path} is no asset"));
    String::from_utf8(asset.plain()).unwrap()
}

/// The paths after `from "` or in `import("`, relative to the folder of the module.
fn imports(path: &str, before: &str) -> Vec<String> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let module = text(path);
    let relative = module.split(before).skip(1).filter_map(|rest| rest.split_once('"').map(|(path, _)| path));
    relative
        .filter(|path| path.starts_with('.'))
        .map(|path| match path.strip_prefix("../") {
            Some(rest) => rest.to_owned(),
            None => format!("{folder}/{}", path.trim_start_matches("./")),
        })
        .collect()
}

fn with_imports(path: &str, found: &mut BTreeSet<String>) {
    if !found.insert(path.to_owned()) || !path.ends_with(".js") {
        return;
    }
    for before in ["from \"", "from\""] {
        imports(path, before).iter().for_each(|import| with_imports(import, found));
    }
}

#[test]
fn first_page_and_all_files_are_within_their_budgets() {
    let mut first = BTreeSet::new();
    FIRST.iter().for_each(|path| with_imports(path, &mut first));
    let size = |path: &str| asset(path).unwrap().gzip.len();
    let bytes: usize = first.iter().map(|path| size(path)).sum();
    assert!(first.len() > 15 && bytes <= FIRST_BYTES_MAX, "{bytes} bytes: {first:?}");
    let all: usize = ASSETS.iter().map(|(_, asset)| asset.gzip.len()).sum();
    assert!(all <= ALL_BYTES_MAX, "{all} bytes");
}

#[test]
fn every_import_is_an_asset_and_nothing_comes_from_elsewhere() {
    for (path, _) in ASSETS.iter().filter(|(path, _)| path.ends_with(".js") && !path.starts_with("vendor/")) {
        for before in ["from \"", "import(\""] {
            for import in imports(path, before) {
                assert!(asset(&import).is_some(), "{path} imports {import}");
            }
        }
        let module = text(path);
        for word in
            ["innerHTML", "eval(", "new Function", "document.write", "fetch(\"", "WebSocket", "sendBeacon"]
        {
            assert!(!module.contains(word), "{path} contains {word}");
        }
        assert!(path == &"app/api.js" || !module.contains("fetch("), "{path} sends requests by itself");
    }
    let (style, index) = (text("style.css"), text("index.html"));
    assert!(!style.contains("url(") && !style.contains("@import"));
    assert!(index.contains(RELEASE) && !index.contains("@RELEASE@"));
}

/// The texts of a language by key.
fn catalogue(language: &str) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for file in [format!("text/{language}.js"), format!("text/{language}_more.js")] {
        for line in text(&file)
            .lines()
            .filter_map(|line| line.strip_suffix("\",")?.strip_prefix('"').map(str::to_owned))
        {
            let (key, value) = line.split_once("\": \"").unwrap_or_else(|| panic!("{file}: {line}"));
            assert!(texts.insert(key.to_owned(), value.to_owned()).is_none(), "{file}: {key} is there twice");
        }
    }
    texts
}

fn placeholders(text: &str) -> BTreeSet<&str> {
    text.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name)).collect()
}

#[test]
fn languages_have_the_same_texts() {
    let (english, chinese) = (catalogue("en"), catalogue("zh"));
    assert!(english.len() > 200);
    let keys = |texts: &BTreeMap<String, String>| texts.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&english), keys(&chinese));
    for (key, text) in &english {
        assert_eq!(placeholders(text), placeholders(&chinese[key]), "{key}");
    }
}

#[test]
fn every_used_text_exists_and_every_text_is_used() {
    let known = catalogue("en");
    let modules: Vec<String> = ASSETS
        .iter()
        .filter(|(path, _)| path.starts_with("app/") || path.starts_with("pages/"))
        .filter(|(path, _)| path.ends_with(".js"))
        .map(|(path, _)| text(path))
        .collect();
    let mut used = BTreeSet::new();
    for module in &modules {
        for rest in module.split("t(\"").skip(1) {
            used.insert(rest.split('"').next().unwrap().to_owned());
        }
    }
    for key in used.iter().filter(|key| key.contains('.') && !key.contains('/')) {
        assert!(known.contains_key(key), "{key} has no text");
    }
    // Keys that are put together: t(`kind.${kind}`), counted(n, "list.count").
    let all = modules.concat();
    for key in known.keys().filter(|key| !used.contains(*key)) {
        let prefix = key.rsplit_once('.').map_or("", |(prefix, _)| prefix);
        let is_composed = all.contains(&format!("`{prefix}.$"))
            || all.contains(&format!("\"{prefix}\""))
            || all.contains(&format!("\"{key}\""));
        let is_of_kind =
            all.contains(&format!("`{}_$", key.rsplit_once('_').map_or("-", |(start, _)| start)));
        assert!(is_composed || is_of_kind, "{key} is not used");
    }
}
