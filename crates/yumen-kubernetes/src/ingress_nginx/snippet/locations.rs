//! Locations of server snippets.

use std::sync::Arc;

use super::SnippetPlace;
use super::branches::BranchExplorer;
use super::effects::BlockEffects;
use super::plan::{LocationMatcher, SnippetAnswer, SnippetLocation, SnippetNote, SnippetRefusal};
use super::steps::{check_pattern, read_steps};
use super::syntax::SnippetDirective;

/// Translates a location. Its directives must answer every request, since it has no service.
pub(super) fn read_location(
    directive: &SnippetDirective,
    place: SnippetPlace,
    notes: &mut Vec<SnippetNote>,
) -> Result<SnippetLocation, SnippetRefusal> {
    if place != SnippetPlace::Server {
        let reason = "a location within a path has no service of its own";
        return Err(directive
            .refuse(reason, Some("write the location in a server-snippet, or as a path of an Ingress")));
    }
    let Some(block) = &directive.block else {
        return Err(directive.refuse("`location` needs a block", None));
    };
    let matcher = read_matcher(directive)?;
    let block: Vec<&SnippetDirective> = block.iter().collect();
    // Directives of the block around it have no order with those within.
    let base = BlockEffects::read(&block, SnippetPlace::Location, false, notes)?;
    let steps = read_steps(&block, SnippetPlace::Location, &base, notes)?;
    let mut branches = BranchExplorer::new(&base).explore(&steps)?;
    for branch in &mut branches {
        let effects = &mut branch.effects;
        if effects.path.is_some() {
            let reason = "a location has no service for the new path";
            return Err(directive.refuse(reason, Some("write the rewrite outside of the location")));
        }
        if effects.answer.is_none() {
            // The files of NGINX's image, among which no path of a service is.
            let status = if base.closes() { 403 } else { 404 };
            effects.answer = Some(SnippetAnswer::Respond { status, body: None, media_type: None });
            if !base.denies_all() {
                let (line, name) = (directive.line, directive.name.clone());
                let reason = "the location has no service: a request gets 404, or 403 before `deny all`";
                notes.push(SnippetNote { line, directive: name, reason });
            }
        }
        // NGINX answers before it checks addresses, and no service receives fields.
        effects.access.clear();
        effects.request_fields.clear();
    }
    Ok(SnippetLocation { matcher, line: directive.line, branches })
}

fn read_matcher(directive: &SnippetDirective) -> Result<LocationMatcher, SnippetRefusal> {
    let words: Vec<&str> = directive.words.iter().map(|word| word.text.as_str()).collect();
    let (modifier, path) = match words[..] {
        [path] => split_modifier(path),
        [modifier, path] => (modifier, path),
        _ => return Err(directive.refuse("the form is `location [MODIFIER] PATH`", None)),
    };
    match modifier {
        "~" | "~*" => {
            check_pattern(directive, path)?;
            Ok(LocationMatcher::Pattern { pattern: path.into(), ignore_case: modifier == "~*" })
        }
        "" | "=" | "^~" if !path.starts_with('/') => {
            Err(directive.refuse(format!("the path {path:?} does not begin with a slash"), None))
        }
        "=" => Ok(LocationMatcher::Exact(Arc::from(path))),
        "^~" => Ok(LocationMatcher::FinalPrefix(path.into())),
        "" => Ok(LocationMatcher::Prefix(path.into())),
        _ => Err(directive.refuse(format!("{modifier:?} is no modifier of a location"), None)),
    }
}

/// Splits `=/path`, which NGINX reads like `= /path`.
fn split_modifier(word: &str) -> (&str, &str) {
    for modifier in ["~*", "^~", "=", "~"] {
        if let Some(path) = word.strip_prefix(modifier) {
            return (modifier, path);
        }
    }
    ("", word)
}
