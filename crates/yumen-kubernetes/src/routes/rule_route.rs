//! Routes with rules, HTTPRoute and GRPCRoute, from judged parts to the output of their unit.

use std::sync::Arc;

use super::attach::{AttachedSection, ParentVerdict};
use super::backends::{BackendResolver, refusal_status};
use super::report::{RuleFindings, status_draft};
use super::rule::{ForwardingPlan, RoutedRule, RuleDefect, RuleMatch, RulePlan};
use super::rule_writer::{RuleWriter, scope_groups};
use crate::derived::UpstreamFlavor;
use crate::engine::UnitOutput;
use crate::model::{ObjectKey, ObjectMeta};

/// A rule as far as it can be followed.
pub(super) struct RuleDraft {
    pub(super) name: Option<Arc<str>>,
    pub(super) matches: Result<Vec<RuleMatch>, RuleDefect>,
    pub(super) plan: Result<ForwardingPlan, RuleDefect>,
}

/// A route whose parents are judged.
pub(super) struct RuleRoute<'r> {
    pub(super) key: &'r ObjectKey,
    pub(super) meta: &'r ObjectMeta,
    pub(super) flavor: UpstreamFlavor,
    pub(super) hostnames: &'r [Arc<str>],
    pub(super) verdicts: &'r [ParentVerdict],
    pub(super) sections: &'r [&'r AttachedSection],
}

impl RuleRoute<'_> {
    pub(super) fn finish(&self, resolver: BackendResolver<'_, '_>, drafts: Vec<RuleDraft>) -> UnitOutput {
        let mut output = UnitOutput { policies: resolver.policies, ..UnitOutput::default() };
        let mut findings = RuleFindings { unresolved: resolver.unresolved, ..RuleFindings::default() };
        let rules: Vec<Option<RoutedRule>> = (drafts.into_iter().enumerate())
            .map(|(position, draft)| self.routed(position, draft, &mut findings))
            .collect();
        if findings.refusal().is_none() {
            let writer = RuleWriter {
                route: self.key,
                meta: self.meta,
                part: if self.flavor == UpstreamFlavor::Grpc { "grpc" } else { "http" },
                hostnames: self.hostnames,
                groups: scope_groups(self.sections, resolver.has_policy),
            };
            for (position, rule) in rules.iter().enumerate() {
                if let Some(rule) = rule {
                    findings.needs.extend(writer.write(position, rule, &mut output));
                }
            }
            output.attachments = self.sections.iter().map(|section| section.key.clone()).collect();
        }
        let draft = status_draft(self.meta.generation, self.verdicts, &findings);
        output.statuses.extend(draft.map(|draft| (self.key.clone(), draft)));
        output
    }

    /// The rule to write; `None` if one of its matches is not supported.
    fn routed(&self, position: usize, draft: RuleDraft, findings: &mut RuleFindings) -> Option<RoutedRule> {
        let plan = match draft.plan {
            Ok(plan) => RulePlan::Forward(Box::new(plan)),
            Err(RuleDefect::Unresolved) => RulePlan::Refuse(refusal_status(self.flavor)),
            Err(RuleDefect::Invalid(reason)) => {
                findings.dropped.push((position, reason));
                // Its requests must not reach a less specific rule.
                return draft.matches.ok().map(|matches| RoutedRule {
                    name: draft.name,
                    matches,
                    plan: RulePlan::Refuse(refusal_status(self.flavor)),
                });
            }
        };
        match draft.matches {
            Ok(matches) => {
                findings.has_sound_rule = true;
                Some(RoutedRule { name: draft.name, matches, plan })
            }
            Err(RuleDefect::Invalid(reason)) => {
                findings.dropped.push((position, reason));
                None
            }
            Err(RuleDefect::Unresolved) => None,
        }
    }
}
