//! Plans of rules: filters and backends of HTTPRoute and GRPCRoute.

use super::backends::{BackendResolver, refusal_status};
use super::http_actions::FilterTranslator;
use super::rule::{BackendActions, ForwardingPlan, RuleBackend, RuleDefect};
use crate::derived::UpstreamFlavor;
use crate::model::{BackendReference, HttpRouteFilter};

/// The parts of a rule that both kinds have.
pub(super) struct WrittenRule<'w> {
    pub(super) filters: &'w [HttpRouteFilter],
    pub(super) backends: Vec<(&'w BackendReference, &'w [HttpRouteFilter])>,
    pub(super) flavor: UpstreamFlavor,
    /// Whether all matches are prefixes of paths.
    pub(super) all_prefixes: bool,
}

/// The plan of a rule. All references are judged, even if a filter is not supported.
pub(super) fn forwarding_plan(
    resolver: &mut BackendResolver<'_, '_>,
    written: &WrittenRule<'_>,
) -> Result<ForwardingPlan, RuleDefect> {
    let mut backends = Vec::with_capacity(written.backends.len());
    for (reference, _) in &written.backends {
        backends.push(RuleBackend {
            weight: reference.weight.unwrap_or(1),
            target: resolver.resolve(reference, written.flavor),
            edits: BackendActions::default(),
        });
    }
    let mut translator =
        FilterTranslator { resolver, flavor: written.flavor, all_prefixes: written.all_prefixes };
    let mut filters: Vec<&HttpRouteFilter> = written.filters.iter().collect();
    let mut defect = None;
    let is_single = backends.len() == 1;
    for (backend, (_, own)) in backends.iter_mut().zip(&written.backends) {
        for filter in *own {
            match translator.add_edit(filter, &mut backend.edits) {
                Ok(true) => {}
                // A filter of the only backend is one of the rule.
                Ok(false) if is_single => filters.push(filter),
                Ok(false) => {
                    let message =
                        format!("filter {:?} of one backend among several is not supported", filter.kind);
                    defect.get_or_insert(RuleDefect::unsupported(message));
                }
                Err(found) => {
                    defect.get_or_insert(found);
                }
            }
        }
    }
    let actions = translator.rule_actions(filters);
    match defect {
        Some(defect) => Err(defect),
        None => Ok(ForwardingPlan {
            actions: actions?,
            backends,
            empty_status: refusal_status(written.flavor),
            ..ForwardingPlan::default()
        }),
    }
}
