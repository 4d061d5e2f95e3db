//! HTTPRoute.

use super::attach::{RouteClaim, attach, attached_sections};
use super::backends::BackendResolver;
use super::http_match::rule_matches;
use super::pattern_budget::PatternBudget;
use super::plan::{WrittenRule, forwarding_plan};
use super::rule::{ForwardingPlan, RuleDefect};
use super::rule_route::{RuleDraft, RuleRoute};
use super::session::session_value;
use super::timing::{retry_value, timeout_value};
use crate::derived::UpstreamFlavor;
use crate::engine::{TrackedView, UnitOutput};
use crate::model::{HttpRouteObject, HttpRouteRule, ObjectKey};
use crate::policy::route_policies;

pub(super) fn translate(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let Some(object) = view.get::<HttpRouteObject>(key) else { return UnitOutput::default() };
    let spec = &object.spec;
    let claim = RouteClaim { route: key, parents: &spec.parent_refs, hostnames: &spec.hostnames };
    let verdicts = attach(view, claim);
    // Routes of other controllers cost nothing more.
    if verdicts.is_empty() {
        return UnitOutput::default();
    }
    let sections = attached_sections(&verdicts);
    let mut resolver = BackendResolver::new(view, key, &sections);
    let policies = route_policies(view, key);
    policies.keys().for_each(|policy| resolver.use_policy(policy));
    let mut patterns = PatternBudget::default();
    let drafts: Vec<RuleDraft> = (spec.rules.iter().enumerate())
        .map(|(position, rule)| {
            let mut draft = translate_rule(&mut resolver, &mut patterns, key, position, rule);
            let added = policies.of_rule(&key.name, rule.name.as_deref());
            draft.matches.iter_mut().flatten().for_each(|one| one.follow(&added));
            draft
        })
        .collect();
    let route = RuleRoute {
        key,
        meta: &object.meta,
        flavor: UpstreamFlavor::Http,
        hostnames: &spec.hostnames,
        verdicts: &verdicts,
        sections: &sections,
    };
    route.finish(resolver, drafts)
}

fn translate_rule(
    resolver: &mut BackendResolver<'_, '_>,
    patterns: &mut PatternBudget,
    route: &ObjectKey,
    position: usize,
    rule: &HttpRouteRule,
) -> RuleDraft {
    let matches = rule_matches(&rule.matches, patterns);
    let mut prefixes = matches.iter().flatten();
    let written = WrittenRule {
        filters: &rule.filters,
        backends: rule.backend_refs.iter().map(|one| (&one.backend, &*one.filters)).collect(),
        flavor: UpstreamFlavor::Http,
        all_prefixes: prefixes.all(|one| one.prefix.is_some()),
    };
    let plan = forwarding_plan(resolver, &written).and_then(|plan| with_rules(plan, route, position, rule));
    RuleDraft { name: rule.name.clone(), matches, plan }
}

/// Adds timeouts, retries and session.
fn with_rules(
    mut plan: ForwardingPlan,
    route: &ObjectKey,
    position: usize,
    rule: &HttpRouteRule,
) -> Result<ForwardingPlan, RuleDefect> {
    plan.timeout = timeout_value(&rule.timeouts)?;
    plan.retry = rule.retry.as_ref().map(retry_value).transpose()?;
    let session = rule.session_persistence.as_ref();
    plan.session = session.map(|session| session_value(session, route, position)).transpose()?;
    Ok(plan)
}
