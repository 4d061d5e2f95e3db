//! First-level modules of a crate do not depend on each other in a cycle. `xtask/cycles.txt` lists the cycles
//! that remain; its entries only shrink. They excuse arrows by names that the root exports, not paths of modules.
//!
//! Reads paths that begin with `crate::`, or with as many `super::` as lead to the root. Names that the root
//! re-exports count as their module. Comments and test code are left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;
use crate::docs::words;
use crate::sizes::indent;
use crate::sources::{Sources, is_test};

const LIST: &str = "xtask/cycles.txt";

/// The first-level modules that each module of a crate uses, with a file that does.
#[derive(Default)]
pub(crate) struct ModuleGraph<'s>(BTreeMap<&'s str, BTreeMap<&'s str, &'s str>>);

/// A cycle of modules in the crate of a folder.
type ListedCycle<'l> = (&'l str, BTreeSet<&'l str>);

/// Cycles that are not listed, and listed ones that shrank or went.
pub(crate) fn check(sources: &Sources) -> Vec<Finding> {
    let listed = listed(sources.text(LIST).unwrap_or_default());
    let (mut findings, mut found) = (Vec::new(), BTreeSet::new());
    for folder in sources.all().filter_map(|(path, _)| path.strip_suffix("/Cargo.toml")) {
        let graph = ModuleGraph::read(sources, folder);
        for cycle in ModuleGraph::of_paths(sources, folder).cycles() {
            let is_listed = listed.iter().any(|(of, modules)| *of == folder && cycle.is_subset(modules));
            // The others are found below.
            if is_listed {
                let names = joined(&cycle);
                let arrows = graph.arrows(&cycle);
                findings.push(format!(
                    "{folder}: paths of {names} form a cycle in {LIST}; remove one of: {arrows}"
                ));
            }
        }
        for cycle in graph.cycles() {
            // A part of a listed cycle is progress, not a new cycle.
            let covers = |(of, modules): &ListedCycle<'_>| *of == folder && cycle.is_subset(modules);
            let names = joined(&cycle);
            let Some(at) = listed.iter().position(covers) else {
                let arrows = graph.arrows(&cycle);
                findings.push(format!("{folder}: modules {names} form a cycle; remove one of: {arrows}"));
                continue;
            };
            found.insert(at);
            if listed[at].1 != cycle {
                findings.push(format!("{folder}: the cycle shrank to {names}; update {LIST}"));
            }
        }
    }
    for (_, (folder, modules)) in listed.iter().enumerate().filter(|(at, _)| !found.contains(at)) {
        let names = joined(modules);
        findings.push(format!("{folder}: modules {names} form no cycle; remove them from {LIST}"));
    }
    findings
}

fn joined(modules: &BTreeSet<&str>) -> String {
    Vec::from_iter(modules.iter().copied()).join(" ")
}

/// Entries as `folder: module module`.
fn listed(text: &str) -> Vec<ListedCycle<'_>> {
    let entries = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "));
    entries.map(|(folder, modules)| (folder, modules.split(' ').collect())).collect()
}

impl<'s> ModuleGraph<'s> {
    /// Reads the sources of the crate in `folder`.
    pub(crate) fn read(sources: &'s Sources, folder: &str) -> ModuleGraph<'s> {
        ModuleGraph::read_with(sources, folder, true)
    }

    /// The graph without the names that the root exports.
    fn of_paths(sources: &'s Sources, folder: &str) -> ModuleGraph<'s> {
        ModuleGraph::read_with(sources, folder, false)
    }

    fn read_with(sources: &'s Sources, folder: &str, follows_exports: bool) -> ModuleGraph<'s> {
        let prefix = format!("{folder}/src/");
        let inside = |path: &'s str| path.strip_prefix(&prefix).filter(|_| !is_test(path));
        let files = sources.rust().filter_map(|(path, text)| Some((inside(path)?, path, text)));
        let (roots, mut files): (Vec<_>, Vec<_>) =
            files.partition(|(inside, ..)| matches!(*inside, "lib.rs" | "main.rs"));
        // Tests may use any module, so their arrows would form cycles.
        let test_modules: BTreeSet<&str> =
            roots.iter().flat_map(|(_, _, text)| declared_for_tests(text)).collect();
        files.retain(|(inside, ..)| !test_modules.contains(module(inside)));
        let mut graph = ModuleGraph::default();
        // All modules first, because a name counts only if it is one of them.
        for (inside, ..) in &files {
            graph.0.entry(module(inside)).or_default();
        }
        let mut exported = graph.exported(roots.into_iter().map(|(_, _, text)| code(text)));
        exported.retain(|_, _| follows_exports);
        for (inside, path, text) in files {
            for name in root_names(&code(text), depth(inside)) {
                graph.add(module(inside), exported.get(name).copied().unwrap_or(name), path);
            }
        }
        graph
    }

    fn add(&mut self, from: &'s str, to: &str, path: &'s str) {
        // Names of other crates and items of the root are no modules.
        let known = self.0.get_key_value(to).map(|(name, _)| *name);
        if let Some(to) = known.filter(|to| *to != from) {
            // One file per arrow suffices as an example.
            self.0.entry(from).or_default().entry(to).or_insert(path);
        }
    }

    /// Names that a root imports or exports from its modules, with the module.
    fn exported(&self, roots: impl Iterator<Item = String>) -> BTreeMap<String, &'s str> {
        let mut exported = BTreeMap::new();
        for root in roots {
            for (_, used) in root.split(';').filter_map(|statement| statement.rsplit_once("use ")) {
                let mut names = words(used).filter(|name| !matches!(*name, "self" | "crate"));
                let module = names.next().and_then(|name| self.0.get_key_value(name));
                let Some((module, _)) = module else { continue };
                // In a group of modules, the names are no items of the first one.
                let names = names.filter(|name| !self.0.contains_key(name));
                exported.extend(names.map(|name| (name.to_owned(), *module)));
            }
        }
        exported
    }

    /// Sets of more than one module of which each reaches each.
    pub(crate) fn cycles(&self) -> BTreeSet<BTreeSet<&'s str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.0.keys().map(|name| (*name, self.reached_from(name))).collect();
        let cycle_of = |name: &str| {
            let others = reached[name].iter().copied();
            BTreeSet::from_iter(others.filter(|other| reached[other].contains(name)))
        };
        self.0.keys().map(|name| cycle_of(name)).filter(|cycle| cycle.len() > 1).collect()
    }

    /// The modules that `from` uses, directly or not.
    fn reached_from(&self, from: &'s str) -> BTreeSet<&'s str> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(name) = open.pop() {
            let used = self.0.get(name).into_iter().flat_map(BTreeMap::keys);
            open.extend(used.copied().filter(|used| reached.insert(*used)));
        }
        reached
    }

    /// The arrows between the modules of a cycle, each with a file.
    fn arrows(&self, cycle: &BTreeSet<&str>) -> String {
        let mut arrows = Vec::new();
        for from in cycle {
            let used = self.0[from].iter().filter(|(to, _)| cycle.contains(*to));
            arrows.extend(used.map(|(to, path)| format!("{from} -> {to} ({path})")));
        }
        arrows.join(", ")
    }
}

/// The first-level module of a file, by its path below `src/`.
fn module(inside: &str) -> &str {
    let first = inside.split('/').next().unwrap_or(inside);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// The number of modules from the root to that of the file.
fn depth(inside: &str) -> usize {
    inside.matches('/').count() + usize::from(!inside.ends_with("/mod.rs"))
}

/// Modules that the root declares for tests only.
fn declared_for_tests(root: &str) -> impl Iterator<Item = &str> {
    let after = root.split("#[cfg(test)]\n").skip(1);
    after.filter_map(|rest| rest.lines().next()?.split_once("mod ")?.1.strip_suffix(';'))
}

/// Code without comment lines and without items for tests. Relies on rustfmt, as `sizes` does.
fn code(text: &str) -> String {
    let (mut code, mut lines) = (String::new(), text.lines());
    while let Some(line) = lines.next() {
        if line.trim_start() == "#[cfg(test)]" {
            skip_item(&mut lines);
        } else if !line.trim_start().starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Skips the item that an attribute precedes.
fn skip_item<'t>(lines: &mut impl Iterator<Item = &'t str>) {
    let Some(first) = lines.find(|line| !line.trim_start().starts_with("#[")) else { return };
    if !first.ends_with([';', ',', '}']) {
        let closes = |line: &str| line.strip_prefix(indent(first)).is_some_and(|rest| rest.starts_with('}'));
        lines.find(|line| closes(line));
    }
}

/// The names of the root that code uses, in a file at this depth.
fn root_names(code: &str, depth: usize) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for root in ["crate::".to_owned(), "super::".repeat(depth)] {
        for (at, _) in code.match_indices(&root) {
            // `$crate` and a longer chain of `super` lead elsewhere.
            let is_start =
                !code[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | ':'));
            if is_start {
                names.extend(first_names(&code[at + root.len()..]));
            }
        }
    }
    names
}

/// The first name of a path, or those of a group of paths.
fn first_names(path: &str) -> Vec<&str> {
    let Some(group) = path.strip_prefix('{') else { return words(path).take(1).collect() };
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            ',' | '}' if depth == 0 => {
                names.extend(words(&group[start..at]).next());
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}
