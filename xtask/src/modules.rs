//! Every source file of a crate is declared as a module. The compiler ignores a file without a declaration, so its
//! tests would not run.

use crate::Finding;
use crate::sources::Sources;

/// The files below `src/` that no `mod` declares.
pub(crate) fn check(sources: &Sources) -> Vec<Finding> {
    let undeclared = |path: &str| {
        let (name, parents) = declaration(path)?;
        let line = format!("mod {name};");
        let declares = |parent: &String| sources.text(parent).is_some_and(|text| has_line(text, &line));
        let place = parents.first()?;
        (!parents.iter().any(declares)).then(|| format!("{path}: not compiled; add `{line}` to {place}"))
    };
    sources.rust().filter_map(|(path, _)| undeclared(path)).collect()
}

/// The name of the module in this file, and the files that may declare it. `None` for the root of a crate.
fn declaration(path: &str) -> Option<(&str, Vec<String>)> {
    let (folder, inside) = path.split_once("/src/")?;
    let module = inside.strip_suffix("/mod.rs").or_else(|| inside.strip_suffix(".rs"))?;
    match module.rsplit_once('/') {
        Some(("bin", _)) => None,
        Some((parent, name)) => {
            Some((name, vec![format!("{folder}/src/{parent}.rs"), format!("{folder}/src/{parent}/mod.rs")]))
        }
        None if matches!(module, "lib" | "main") => None,
        None => Some((module, vec![format!("{folder}/src/lib.rs"), format!("{folder}/src/main.rs")])),
    }
}

/// Whether a line is this declaration, behind any visibility.
fn has_line(text: &str, declaration: &str) -> bool {
    text.lines().any(|line| {
        let before = line.trim().strip_suffix(declaration).map(str::trim_end);
        before.is_some_and(|before| before.is_empty() || before.starts_with("pub"))
    })
}
