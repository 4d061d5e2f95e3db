//! Misspelt members in place of required ones: one finding, at the member that was written.

use yumen_base::{Problem, ProblemLevel};

/// The problems of a broken object with its members `without_effect`. An error about required members that misspelt ones
/// replace is left out: the misspelt members are the errors.
pub(super) fn merge(problems: Vec<Problem>, mut without_effect: Vec<Problem>) -> Vec<Problem> {
    let mut merged = Vec::new();
    for problem in problems {
        let Some((parent, names)) = missing_members(&problem) else {
            merged.push(problem);
            continue;
        };
        let replaces = |other: &Problem, name: &str| {
            let written = other.path.strip_prefix(parent).map(|member| member.trim_start_matches('.'));
            other.hint.as_deref().and_then(only_quoted) == Some(name)
                && written.is_some_and(|member| !member.is_empty() && !member.contains(['.', '[']))
        };
        let is_replaced = |name: &&str| without_effect.iter().any(|other| replaces(other, name));
        if !names.iter().all(is_replaced) {
            merged.push(problem);
            continue;
        }
        let is_cause = |other: &mut Problem| names.iter().any(|name| replaces(other, name));
        let mut effect = problem.hint.clone();
        for cause in without_effect.extract_if(.., is_cause) {
            let remedy = cause.hint.iter().cloned().chain(effect.take());
            let hint = Some(remedy.collect::<Vec<String>>().join(" "));
            let message = cause.message.trim_end_matches(" has no effect").to_owned();
            let last_good = problem.last_good;
            merged.push(Problem { level: ProblemLevel::Error, message, hint, last_good, ..cause });
        }
    }
    merged.append(&mut without_effect);
    merged
}

/// The object and the names of the members that an error misses.
fn missing_members(problem: &Problem) -> Option<(&str, Vec<&str>)> {
    if problem.level != ProblemLevel::Error {
        return None;
    }
    if let Some(names) = problem.allowed.as_deref().and_then(|text| text.strip_prefix("did you mean ")) {
        let is_choice = problem.message.contains("the required") || problem.message.ends_with("matches none");
        // The odd parts are in quotes.
        return is_choice.then(|| (&*problem.path, names.split('"').skip(1).step_by(2).collect()));
    }
    let message = problem.message.strip_suffix("\" is required")?;
    let name = message.rsplit('"').next()?;
    let parent = problem.path.strip_suffix(name)?;
    Some((parent.trim_end_matches('.'), vec![name]))
}

/// The name in a suggestion.
fn only_quoted(hint: &str) -> Option<&str> {
    hint.strip_prefix("did you mean \"")?.strip_suffix("\"?")
}

#[cfg(test)]
mod tests;
