//! Translated pages have the sections, tables, commands and settings of their originals.
//!
//! The prose itself is not compared: a changed sentence of the original passes.

use std::collections::BTreeSet;

use crate::Finding;
use crate::docs::backticked;
use crate::sources::Sources;

/// Folder of the Chinese pages; the rest of the path is that of the original.
const FOLDER: &str = "docs/zh/";
/// The list of all guides, translated or not.
const INDEX: &str = "docs/zh/README.md";
const GUIDES: &str = "docs/guides/";
/// Mark of a guide in the list that has no translation.
const UNTRANSLATED: &str = "（英文）";

/// Differences between pages and their originals, and mistakes in the list of guides.
pub(crate) fn check(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    let pages = sources.all().filter(|(path, _)| path.ends_with(".md") && *path != INDEX);
    for (path, translated) in pages {
        let Some(rest) = path.strip_prefix(FOLDER) else { continue };
        let original = format!("docs/{rest}");
        match sources.text(&original) {
            None => findings.push(format!("{path}: there is no {original} that it translates")),
            Some(text) => {
                let differences = differences(text, translated).into_iter();
                findings.extend(differences.map(|difference| format!("{path}: {difference} ({original})")));
            }
        }
    }
    findings.extend(check_index(sources));
    findings
}

/// The index lists every guide once: the translation, or the original with a mark.
fn check_index(sources: &Sources) -> Vec<Finding> {
    let Some(index) = sources.text(INDEX) else { return Vec::new() };
    let guides = sources.all().filter_map(|(path, _)| path.strip_prefix(GUIDES));
    let names = guides.filter(|name| name.ends_with(".md") && !name.contains('/'));
    let line_with = |link: String| index.lines().filter(move |line| line.contains(&link)).collect::<Vec<_>>();
    let mut findings = Vec::new();
    for name in names {
        let is_translated = sources.text(&format!("{FOLDER}guides/{name}")).is_some();
        let translated = line_with(format!("](guides/{name})"));
        let original = line_with(format!("](../guides/{name})"));
        let is_marked = original.len() == 1 && original[0].contains(UNTRANSLATED);
        match (is_translated, translated.len(), original.len()) {
            (true, 1, 0) => {}
            (true, ..) => findings.push(format!("{INDEX}: link to the translation guides/{name}, once")),
            (false, 0, 1) if is_marked => {}
            (false, ..) => {
                findings
                    .push(format!("{INDEX}: link to ../guides/{name} with {UNTRANSLATED} in its line, once"));
            }
        }
    }
    findings
}

/// The first difference of each kind.
fn differences(original: &str, translated: &str) -> Vec<String> {
    let first_of = |what: &str, left: &[String], right: &[String]| {
        let at = left.iter().zip(right).position(|(left, right)| left != right);
        let at = at.or_else(|| (left.len() != right.len()).then(|| left.len().min(right.len())))?;
        let at_original = left.get(at).map_or("nothing", |text| text.lines().next().unwrap_or_default());
        Some(format!("{what} {} differs, where the original has \"{at_original}\"", at + 1))
    };
    let mut found = Vec::new();
    found.extend(first_of("section", &headings(original), &headings(translated)).map(|text| {
        let titles: Vec<&str> = prose(original).filter(|line| line.starts_with('#')).collect();
        format!("{text}; its sections are {titles:?}")
    }));
    found.extend(first_of("block", &blocks(original), &blocks(translated)));
    found.extend(first_of("table row", &rows(original), &rows(translated)));
    let (left, right): (BTreeSet<&str>, BTreeSet<&str>) =
        (backticked(original).collect(), backticked(translated).collect());
    let missing: Vec<&&str> = left.difference(&right).collect();
    let added: Vec<&&str> = right.difference(&left).collect();
    if !missing.is_empty() || !added.is_empty() {
        found.push(format!("names in backticks differ: missing {missing:?}, added {added:?}"));
    }
    found
}

/// Lines outside fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(str::lines)
}

/// Levels of the headings, as their marks.
fn headings(text: &str) -> Vec<String> {
    let marks = prose(text).filter(|line| line.starts_with('#'));
    marks.map(|line| line.chars().take_while(|c| *c == '#').collect()).collect()
}

/// Widths of the rows of all tables.
fn rows(text: &str) -> Vec<String> {
    let rows = prose(text).filter(|line| line.starts_with('|'));
    rows.map(|line| format!("{} cells", line.replace("\\|", "").matches('|').count().saturating_sub(1)))
        .collect()
}

/// Fenced blocks with their language, without comments, which are translated too.
fn blocks(text: &str) -> Vec<String> {
    let fenced = text.split("```").skip(1).step_by(2);
    fenced.map(|block| block.lines().map(without_comment).collect::<Vec<_>>().join("\n")).collect()
}

/// A line without its comment. `#END` is the last line of a resource file.
fn without_comment(line: &str) -> &str {
    let is_start = |at: usize| at == 0 || line[..at].ends_with(' ');
    let at =
        line.match_indices('#').map(|(at, _)| at).find(|at| is_start(*at) && line[*at..].starts_with("# "));
    line[..at.unwrap_or(line.len())].trim_end()
}

#[cfg(test)]
mod tests;
