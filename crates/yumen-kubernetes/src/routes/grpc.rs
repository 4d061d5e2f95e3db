//! GRPCRoute.

use super::attach::{RouteClaim, attach, attached_sections};
use super::backends::BackendResolver;
use super::grpc_match::rule_matches;
use super::pattern_budget::PatternBudget;
use super::plan::{WrittenRule, forwarding_plan};
use super::rule_route::{RuleDraft, RuleRoute};
use super::session::session_value;
use crate::derived::UpstreamFlavor;
use crate::engine::{TrackedView, UnitOutput};
use crate::model::{GrpcRouteFilter, GrpcRouteObject, GrpcRouteRule, HttpRouteFilter, ObjectKey};

pub(super) fn translate(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let Some(object) = view.get::<GrpcRouteObject>(key) else { return UnitOutput::default() };
    let spec = &object.spec;
    let claim = RouteClaim { route: key, parents: &spec.parent_refs, hostnames: &spec.hostnames };
    let verdicts = attach(view, claim);
    if verdicts.is_empty() {
        return UnitOutput::default();
    }
    let sections = attached_sections(&verdicts);
    let mut resolver = BackendResolver::new(view, key, &sections);
    let mut patterns = PatternBudget::default();
    let drafts: Vec<RuleDraft> = (spec.rules.iter().enumerate())
        .map(|(position, rule)| translate_rule(&mut resolver, &mut patterns, key, position, rule))
        .collect();
    let route = RuleRoute {
        key,
        meta: &object.meta,
        flavor: UpstreamFlavor::Grpc,
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
    rule: &GrpcRouteRule,
) -> RuleDraft {
    let filters = http_filters(&rule.filters);
    let of_backends: Vec<Vec<HttpRouteFilter>> =
        rule.backend_refs.iter().map(|backend| http_filters(&backend.filters)).collect();
    let backends = rule.backend_refs.iter().map(|backend| &backend.backend);
    let written = WrittenRule {
        filters: &filters,
        backends: backends.zip(of_backends.iter().map(Vec::as_slice)).collect(),
        flavor: UpstreamFlavor::Grpc,
        all_prefixes: false,
    };
    let plan = forwarding_plan(resolver, &written).and_then(|mut plan| {
        let session = rule.session_persistence.as_ref();
        plan.session = session.map(|session| session_value(session, route, position)).transpose()?;
        Ok(plan)
    });
    RuleDraft { name: rule.name.clone(), matches: rule_matches(&rule.matches, patterns), plan }
}

/// The filters in the form of HTTPRoute, which has all of their members.
fn http_filters(filters: &[GrpcRouteFilter]) -> Vec<HttpRouteFilter> {
    let filter = |filter: &GrpcRouteFilter| HttpRouteFilter {
        kind: filter.kind.clone(),
        request_header_modifier: filter.request_header_modifier.clone(),
        response_header_modifier: filter.response_header_modifier.clone(),
        request_mirror: filter.request_mirror.clone(),
        extension_ref: filter.extension_ref.clone(),
        ..HttpRouteFilter::default()
    };
    filters.iter().map(filter).collect()
}
