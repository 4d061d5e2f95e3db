//! `rewrite … last`: the location of a host that the new path chooses.

use yumen_plugin::{BacktrackBudget, PatternCase, PatternOptions, RegexPattern};

use super::effects::HostContext;
use super::location_path::IngressPathForm;
use super::locations::{HostLocation, SnippetUse};
use crate::ingress_nginx::{
    IngressRewriteTarget, LocationMatcher, SnippetEffects, SnippetPathEdit, SnippetPlan, TextPart,
};

/// The beginning of a new path that is known before the request.
struct KnownPath<'e> {
    text: &'e str,
    /// Whether it is the whole path.
    is_whole: bool,
}

impl<'e> KnownPath<'e> {
    fn of(edit: &'e SnippetPathEdit) -> KnownPath<'e> {
        let [TextPart::Literal(first), rest @ ..] = &edit.to.parts[..] else {
            return KnownPath { text: "", is_whole: edit.to.parts.is_empty() };
        };
        match first.split_once('?') {
            Some((path, _)) => KnownPath { text: path, is_whole: true },
            None => KnownPath { text: first, is_whole: rest.is_empty() },
        }
    }

    /// Whether the path begins with `prefix`; `None` if that depends on the request.
    fn begins_with(&self, prefix: &str) -> Option<bool> {
        match self.text.starts_with(prefix) {
            true => Some(true),
            false if !self.is_whole && prefix.starts_with(self.text) => None,
            false => Some(false),
        }
    }

    fn equals(&self, path: &str) -> Option<bool> {
        match self.is_whole {
            true => Some(self.text == path),
            false if path.starts_with(self.text) => None,
            false => Some(false),
        }
    }

    fn has_element_prefix(&self, prefix: &str) -> Option<bool> {
        let prefix = prefix.trim_end_matches('/');
        match self.begins_with(prefix) {
            Some(true) if prefix.is_empty() => Some(true),
            Some(true) => match self.text.as_bytes().get(prefix.len()) {
                Some(next) => Some(*next == b'/'),
                None => self.is_whole.then_some(true),
            },
            other => other,
        }
    }

    fn matches_pattern(&self, pattern: &str, ignore_case: bool) -> Option<bool> {
        if !self.is_whole {
            return None;
        }
        let case = if ignore_case { PatternCase::Insensitive } else { PatternCase::Sensitive };
        let pattern =
            RegexPattern::new(pattern, PatternOptions { case, ..PatternOptions::default() }).ok()?;
        pattern.is_match(self.text.as_bytes(), &BacktrackBudget::default()).ok()
    }
}

/// The branch of a location whose last effect on the path relocates requests, if it does so.
pub(super) fn relocating_edit<'t>(branch: &SnippetUse<'t>) -> Option<&'t SnippetPathEdit> {
    if branch.effects.iter().any(|effects| effects.answer.is_some()) {
        return None;
    }
    branch.effects.iter().find_map(|effects| effects.path.as_ref()).filter(|edit| edit.relocates)
}

/// The location of the new path, with the effects of snippets there.
///
/// # Errors
/// The reason why the location depends on the request, or why its own directives would have to read the new path.
pub(super) fn relocated<'l, 't>(
    context: &HostContext<'_, 't>,
    location: &HostLocation<'t>,
    all: &'l [HostLocation<'t>],
    branch: &SnippetUse<'t>,
    edit: &'t SnippetPathEdit,
) -> Result<(&'l HostLocation<'t>, SnippetUse<'t>), String> {
    let path = KnownPath::of(edit);
    let open = || format!("the location of the new path {} depends on the request", edit.to);
    let snippets = [context.defaults.snippets.1.as_deref(), context.server_snippet];
    if snippets.into_iter().flatten().any(|plan| may_have_location(plan, &path)) {
        return Err(format!("the new path {} may be that of a location of the server snippet", edit.to));
    }
    let target = target_of(all, context.has_patterns, &path).ok_or_else(open)?;
    let is_of_host = branch.effects[..branch.of_host].iter().any(|one| one.path.is_some());
    let repeats = path.matches_pattern(&edit.pattern, false) != Some(false);
    if !is_of_host && target.id == location.id && repeats {
        return Err(format!("the pattern {} matches the new path again", edit.pattern));
    }
    let settings = target.owner.map(|owner| &owner.settings);
    let target_path = settings.and_then(|settings| settings.rewrite.target.as_ref());
    let is_rewritten = match target_path {
        Some(IngressRewriteTarget::Path(to)) => **to != *target.path,
        Some(IngressRewriteTarget::Redirect(_)) => true,
        None => false,
    };
    if is_rewritten {
        return Err("rewrite-target of the location would have to read the new path".to_owned());
    }
    let own = settings.and_then(|settings| settings.snippets.location.as_deref());
    let mut effects: Vec<&SnippetEffects> = branch.effects[..branch.of_host].to_vec();
    for plan in [context.defaults.snippets.0.as_deref(), own].into_iter().flatten() {
        let is_own = target.id == location.id && !is_of_host;
        match plan.only() {
            Some(only) if only.path.is_none() => effects.push(only),
            _ if plan.branches.is_empty() => {}
            _ if is_own && relocates_once(plan) => effects.push(&plan.branches[1].effects),
            _ => return Err("the snippet of the location would have to read the new path".to_owned()),
        }
    }
    Ok((target, SnippetUse { of_host: branch.of_host, effects, ..SnippetUse::default() }))
}

/// Whether a plan has one branch that relocates and the rest, which holds for the new path.
fn relocates_once(plan: &SnippetPlan) -> bool {
    match &plan.branches[..] {
        [first, _] => first.effects.path.as_ref().is_some_and(|edit| edit.relocates),
        _ => false,
    }
}

fn may_have_location(plan: &SnippetPlan, path: &KnownPath<'_>) -> bool {
    plan.locations.iter().any(|location| {
        let found = match &location.matcher {
            LocationMatcher::Exact(exact) => path.equals(exact),
            LocationMatcher::Prefix(prefix) | LocationMatcher::FinalPrefix(prefix) => {
                path.begins_with(prefix)
            }
            LocationMatcher::Pattern { pattern, ignore_case } => path.matches_pattern(pattern, *ignore_case),
        };
        found != Some(false)
    })
}

/// The location that a path chooses; `None` if that depends on the request.
fn target_of<'l, 't>(
    all: &'l [HostLocation<'t>],
    has_patterns: bool,
    path: &KnownPath<'_>,
) -> Option<&'l HostLocation<'t>> {
    if has_patterns {
        // In the order in which they are tried.
        for location in all {
            if path.matches_pattern(&format!("^(?:{})", location.path), true)? {
                return Some(location);
            }
        }
        return None;
    }
    let mut best: Option<&HostLocation<'t>> = None;
    let rank =
        |one: &HostLocation<'_>| (one.form == IngressPathForm::Exact, one.path.trim_end_matches('/').len());
    for location in all {
        let found = match location.form {
            IngressPathForm::Exact => path.equals(&location.path),
            IngressPathForm::Prefix => path.has_element_prefix(&location.path),
            IngressPathForm::Characters => path.begins_with(&location.path),
        };
        if found? && best.is_none_or(|best| rank(location) > rank(best)) {
            best = Some(location);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingress_nginx::NginxText;

    fn edit(to: &str) -> SnippetPathEdit {
        let to = NginxText::parse(to).expect("a text");
        SnippetPathEdit { pattern: "^/a".into(), to, keep_query: true, relocates: true }
    }

    fn location(path: &str, form: IngressPathForm) -> HostLocation<'static> {
        HostLocation {
            path: path.into(),
            form,
            owner: None,
            target: super::super::locations::LocationTarget::Default,
            canary: None,
            id: path.to_owned(),
            flaw: None,
        }
    }

    #[test]
    fn a_new_path_chooses_the_location_that_is_sure() {
        use IngressPathForm::{Characters, Exact, Prefix};
        let literal = [
            location("/", Prefix),
            location("/app", Prefix),
            location("/app/one", Exact),
            location("/data", Characters),
        ];
        let patterns = [location("/app(/|$)(.*)", Prefix), location("/", Prefix)];
        let check = |all: &[HostLocation<'static>], has_patterns: bool, to: &str, expected: Option<&str>| {
            let edit = edit(to);
            let found = target_of(all, has_patterns, &KnownPath::of(&edit)).map(|one| &*one.path);
            assert_eq!(found, expected, "{to}");
        };
        check(&literal, false, "/index.php?x=1", Some("/"));
        check(&literal, false, "/app/two", Some("/app"));
        check(&literal, false, "/app/one", Some("/app/one"));
        check(&literal, false, "/apple", Some("/"));
        check(&literal, false, "/database", Some("/data"));
        check(&literal, false, "/other/$1", Some("/"));
        check(&literal, false, "/data/$1", Some("/data"));
        check(&literal, false, "/app$1", None);
        check(&literal, false, "/app/$1", None);
        check(&literal, false, "$1", None);
        check(&patterns, true, "/app/x", Some("/app(/|$)(.*)"));
        check(&patterns, true, "/x", Some("/"));
        check(&patterns, true, "/x/$1", None);
    }
}
