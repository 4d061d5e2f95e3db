//! Documents refer to existing names only, and no file names the machine on which it was written.

use std::collections::BTreeSet;
use std::path::Path;

use syn::{Item, TraitItem};

use crate::Finding;
use crate::sources::Sources;

/// Documents in which every backticked crate, type or source file must exist.
const CHECKED: &[&str] = &["ARCHITECTURE.md", "docs/contributing/"];

/// Words that no file may contain, in halves so that this file does not.
const BANNED: &[(&str, &str)] = &[("/wo", "rk/"), ("../sha", "red/"), ("artifac", "tory")];

/// Backticked names that do not exist, and broken links.
pub(crate) fn check(sources: &Sources, root: &Path) -> Vec<Finding> {
    let known = known_names(sources);
    let mut findings = Vec::new();
    for (path, text) in sources.all().filter(|(path, _)| is_checked(path)) {
        for name in backticked(text).filter(|name| is_claim(name) && !known.contains(*name)) {
            findings.push(format!("{path}: `{name}` is not defined in the code"));
        }
        for name in backticked(text).filter(|name| is_source_path(name) && !is_in(sources, name)) {
            findings.push(format!("{path}: there is no file `{name}`"));
        }
    }
    for (path, text) in sources.all().filter(|(path, _)| path.ends_with(".md")) {
        let folder = root.join(path).parent().map(Path::to_path_buf).unwrap_or_default();
        for link in links(text).filter(|link| !folder.join(link).exists()) {
            findings.push(format!("{path}: link to {link}, which does not exist"));
        }
        for (file, anchor) in anchored_links(text) {
            let target = match file {
                "" => Some(text.to_owned()),
                file => std::fs::read_to_string(folder.join(file)).ok(),
            };
            if target.is_some_and(|target| !anchors(&target).contains(anchor)) {
                findings.push(format!("{path}: link to {file}#{anchor}, a section that does not exist"));
            }
        }
    }
    findings
}

fn is_checked(path: &str) -> bool {
    CHECKED.iter().any(|checked| path == *checked || (checked.ends_with('/') && path.starts_with(checked)))
}

/// Whether a backticked name claims to be a source file: `forward.rs`, `reply/pump.rs`. Capitals are placeholders.
fn is_source_path(name: &str) -> bool {
    name.ends_with(".rs") && !name.contains(|c: char| c.is_whitespace() || c == '*' || c.is_ascii_uppercase())
}

/// Whether `name` is a file, or the last part of the path of one.
fn is_in(sources: &Sources, name: &str) -> bool {
    sources
        .rust()
        .any(|(path, _)| path == name || path.strip_suffix(name).is_some_and(|rest| rest.ends_with('/')))
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

/// Crates, and the types, traits, aliases, variants and constants of the workspace.
fn known_names(sources: &Sources) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for (path, text) in sources.all() {
        if let Some(name) = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()) {
            known.insert(name.to_owned());
        }
        if let (true, Ok(file)) = (path.ends_with(".rs"), syn::parse_file(text)) {
            add_definitions(&file.items, &mut known);
        }
    }
    known
}

fn add_definitions(items: &[Item], known: &mut BTreeSet<String>) {
    for item in items {
        let name = match item {
            Item::Struct(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Const(item) => &item.ident,
            Item::Static(item) => &item.ident,
            Item::Enum(item) => {
                known.extend(item.variants.iter().map(|variant| variant.ident.to_string()));
                &item.ident
            }
            Item::Trait(item) => {
                known.extend(item.items.iter().filter_map(|member| match member {
                    TraitItem::Type(member) => Some(member.ident.to_string()),
                    _ => None,
                }));
                &item.ident
            }
            Item::Mod(item) => {
                if let Some((_, items)) = &item.content {
                    add_definitions(items, known);
                }
                continue;
            }
            // Types that a macro defines are written by name in its call.
            Item::Macro(item) => {
                let tokens = item.mac.tokens.to_string();
                known.extend(
                    words(&tokens).filter(|word| word.starts_with(char::is_uppercase)).map(str::to_owned),
                );
                continue;
            }
            _ => continue,
        };
        known.insert(name.to_string());
    }
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
    targets(text).filter(|target| !target.starts_with('#')).filter_map(|target| target.split('#').next())
}

/// Links to a section: the file, empty for the same document, and the anchor.
fn anchored_links(text: &str) -> impl Iterator<Item = (&str, &str)> {
    targets(text)
        .filter_map(|target| target.split_once('#'))
        .filter(|(file, _)| file.is_empty() || file.ends_with(".md"))
}

/// Relative link targets, outside fenced blocks.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    let targets = prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| {
        !target.contains("://") && !target.starts_with('<') && !target.starts_with("mailto:")
    })
}

/// Anchors of the sections of a document, formed as on GitHub: lower case, hyphens for spaces, other punctuation
/// removed.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let titles = text.split("```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with('#'));
    let anchor = |title: &str| {
        let kept = title
            .trim_start_matches('#')
            .trim()
            .chars()
            .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
    };
    titles.map(anchor).collect()
}
