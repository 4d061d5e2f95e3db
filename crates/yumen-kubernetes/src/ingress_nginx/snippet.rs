//! Snippets: directives of NGINX, translated to native actions and never executed.
//!
//! The order of modules, each of which uses those before it only: `plan` (typed results), `syntax` (text to
//! directives), `directives` (the table of names), `values` (arguments), `effects` (directives without conditions),
//! `steps` (directives of the rewrite module), `branches` (steps to branches), `locations`.

mod branches;
mod directives;
mod effects;
mod locations;
mod plan;
mod steps;
mod syntax;
mod values;

use branches::BranchExplorer;
use effects::BlockEffects;
use steps::read_steps;
use syntax::{SnippetDirective, parse_snippet};

pub(super) use directives::DIRECTIVE_ROWS;
pub use plan::{
    AccessRule, LocationMatcher, RequestFieldEdit, RequestFieldValue, ResponseFieldEdit, ResponseFieldVerb,
    SnippetAnswer, SnippetBranch, SnippetCondition, SnippetEffects, SnippetLocation, SnippetNote,
    SnippetPathEdit, SnippetPlan, SnippetRefusal, SnippetSetting, SnippetTest,
};

/// The block of NGINX's configuration that a snippet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnippetPlace {
    /// A path: `configuration-snippet`, `location-snippet` of the ConfigMap.
    Location,
    /// A host: `server-snippet`.
    Server,
    /// The request to an auth service: `auth-snippet`, `global-auth-snippet`.
    Auth,
}

/// Translates a snippet. The first directive that has no translation refuses the whole snippet.
pub fn translate_snippet(text: &str, place: SnippetPlace) -> Result<SnippetPlan, SnippetRefusal> {
    let directives = parse_snippet(text).map_err(|mut refusal| {
        // Any text may guard if its directives are not known.
        refusal.guards = true;
        refusal
    })?;
    translate_directives(&directives, place).map_err(|mut refusal| {
        refusal.guards = directives.iter().any(directives::guards);
        refusal
    })
}

/// Whether a snippet of NGINX's `http` block, which has no translation, protects all hosts. Its blocks are servers of
/// their own and tables.
pub(super) fn guards_all_hosts(text: &str) -> bool {
    match parse_snippet(text) {
        Ok(all) => all.iter().any(|directive| directive.block.is_none() && directives::guards(directive)),
        Err(_) => true,
    }
}

fn translate_directives(
    directives: &[SnippetDirective],
    place: SnippetPlace,
) -> Result<SnippetPlan, SnippetRefusal> {
    let mut plan = SnippetPlan::default();
    let own: Vec<&SnippetDirective> =
        directives.iter().filter(|directive| directive.name != "location").collect();
    let base = BlockEffects::read(&own, place, false, &mut plan.notes)?;
    let steps = read_steps(&own, place, &base, &mut plan.notes)?;
    plan.branches = BranchExplorer::new(&base).explore(&steps)?;
    // A snippet of locations alone changes nothing else.
    if let [branch] = &plan.branches[..]
        && branch.effects == SnippetEffects::default()
    {
        plan.branches.clear();
    }
    for directive in directives.iter().filter(|directive| directive.name == "location") {
        plan.locations.push(locations::read_location(directive, place, &mut plan.notes)?);
    }
    Ok(plan)
}

#[cfg(test)]
mod tests;
