//! The annotations of one Ingress: those that are taken, and problems of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use yumen_config::suggestion;

use super::table::{AnnotationRow, AnnotationVerdict, GROUPS, IGNORED_EVERYWHERE, find_row};
use super::value_rule::{ValueRule, parse_switch};
use super::{AnnotationConsequence, AnnotationProblem};
use crate::ingress_nginx::controller::AnnotationPolicy;
use crate::ingress_nginx::nginx_text::NginxText;
use crate::ingress_nginx::variables::with_raw_arguments;
use crate::model::{ClusterKind, ObjectKey, ObjectMeta};

/// Bytes of the longest value that is read. Kubernetes bounds all annotations of an object at 256 KiB.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Reads values by name without the prefix.
pub(super) struct AnnotationReader<'a> {
    namespace: &'a Arc<str>,
    policy: &'a AnnotationPolicy,
    /// Values that are taken, by the name of their row.
    values: BTreeMap<&'static str, &'a str>,
    /// Names of the rows of all values, also of those that are not taken.
    written: BTreeSet<&'static str>,
    problems: Vec<AnnotationProblem>,
}

impl<'a> AnnotationReader<'a> {
    pub(super) fn new(meta: &'a ObjectMeta, policy: &'a AnnotationPolicy) -> AnnotationReader<'a> {
        let namespace = &meta.namespace;
        let mut reader = AnnotationReader {
            namespace,
            policy,
            values: BTreeMap::new(),
            written: BTreeSet::new(),
            problems: Vec::new(),
        };
        for (full, value) in &meta.annotations {
            let name = full.strip_prefix(&*policy.prefix).and_then(|rest| rest.strip_prefix('/'));
            if let Some(name) = name.filter(|_| !value.trim().is_empty()) {
                reader.admit(name, value);
            }
        }
        reader
    }

    /// Takes a value, or reports why it is not taken.
    fn admit(&mut self, name: &str, value: &'a str) {
        let Some(row) = find_row(name) else { return self.report_unknown(name) };
        self.written.insert(row.name);
        let is_snippet = row.rule == ValueRule::Snippet;
        if is_snippet && !self.policy.allows_snippets {
            let reason = "snippets are not allowed: the ConfigMap's allow-snippet-annotations is false";
            let way = "set allow-snippet-annotations to true and annotations-risk-level to Critical";
            return self.push_inadmissible(name, AnnotationConsequence::LeftOut, reason, Some(way));
        }
        if row.risk > self.policy.risk_max {
            let reason = format!("its risk is {:?}, above the ConfigMap's annotations-risk-level", row.risk);
            let way = format!("set annotations-risk-level to {:?}", row.risk);
            return self.push_inadmissible(name, AnnotationConsequence::IngressRefused, reason, Some(&way));
        }
        if value.len() > VALUE_BYTES_MAX {
            let reason = format!("the value has more than {VALUE_BYTES_MAX} bytes");
            return self.push_inadmissible(name, row.invalid, reason, None);
        }
        let blocked = self.policy.blocked_words.iter().find(|word| value.contains(&***word));
        if let Some(word) = blocked {
            let reason = format!("the value has {word:?}, a word of annotation-value-word-blocklist");
            return self.push_inadmissible(name, AnnotationConsequence::IngressRefused, reason, None);
        }
        if let Err(reason) = row.rule.check(value) {
            return self.push_inadmissible(name, row.invalid, reason, None);
        }
        // The main name counts if both are written.
        if row.name == name || !self.values.contains_key(row.name) {
            self.values.insert(row.name, value);
        }
        self.report_verdict(name, row, value);
    }

    fn report_verdict(&mut self, name: &str, row: &AnnotationRow, value: &str) {
        if !row.harmless.is_empty() && row.harmless == value.trim() {
            return;
        }
        match row.verdict {
            AnnotationVerdict::Works => {}
            // The translation reports the directives of a snippet.
            AnnotationVerdict::Differs(_) if row.rule == ValueRule::Snippet => {}
            AnnotationVerdict::Differs(reason) => {
                self.push(name, AnnotationConsequence::Differs, reason, None);
            }
            AnnotationVerdict::NoEffect(reason) => {
                self.push(name, AnnotationConsequence::NoEffect, reason, None);
            }
            AnnotationVerdict::Refused { consequence, reason, way_over } => {
                self.push(name, consequence, reason, Some(way_over));
            }
        }
    }

    fn report_unknown(&mut self, name: &str) {
        if IGNORED_EVERYWHERE.contains(&name) {
            let reason = "ingress-nginx ignores the annotation too";
            return self.push_shared(name, AnnotationConsequence::NoEffect, reason, Some("remove it"));
        }
        let known = GROUPS.iter().flat_map(|group| group.rows).map(|row| row.name);
        let hint = suggestion(name, known);
        let reason = "no annotation of ingress-nginx has this name";
        self.push_shared(name, AnnotationConsequence::NoEffect, reason, hint.as_deref());
    }

    /// Reports a finding about an annotation by its name without the prefix.
    pub(super) fn push(
        &mut self,
        name: &str,
        consequence: AnnotationConsequence,
        reason: impl Display,
        way_over: Option<&str>,
    ) {
        self.problems.push(AnnotationProblem {
            annotation: format!("{}/{name}", self.policy.prefix).into(),
            consequence,
            reason: reason.to_string(),
            way_over: way_over.map(str::to_owned),
            is_shared: false,
            // The Ingress would serve none of its paths.
            is_inadmissible: consequence >= AnnotationConsequence::IngressDenied,
        });
    }

    /// Reports a finding whose consequence is the same in ingress-nginx.
    fn push_shared(
        &mut self,
        name: &str,
        consequence: AnnotationConsequence,
        reason: impl Display,
        way_over: Option<&str>,
    ) {
        self.push(name, consequence, reason, way_over);
        if let Some(last) = self.problems.last_mut() {
            last.is_shared = true;
        }
    }

    /// Reports a value that is not taken, in ingress-nginx neither.
    fn push_inadmissible(
        &mut self,
        name: &str,
        consequence: AnnotationConsequence,
        reason: impl Display,
        way_over: Option<&str>,
    ) {
        self.push_shared(name, consequence, reason, way_over);
        if let Some(last) = self.problems.last_mut() {
            last.is_inadmissible = true;
        }
    }

    /// Reports that a value is left out, as in ingress-nginx.
    pub(super) fn leave_out(&mut self, name: &str, reason: impl Display) {
        self.push_shared(name, AnnotationConsequence::LeftOut, reason, None);
    }

    /// Reports that the Ingress answers 503, as in ingress-nginx.
    pub(super) fn deny(&mut self, name: &str, reason: impl Display) {
        self.push_shared(name, AnnotationConsequence::IngressDenied, reason, None);
    }

    /// Whether an annotation is written, with a value other than `false`.
    pub(super) fn is_requested(&self, name: &str) -> bool {
        self.written.contains(name) && self.switch(name) != Some(false)
    }

    /// Reports an annotation without effect, here as in ingress-nginx, unless it has another finding.
    pub(super) fn report_lone(&mut self, name: &str, needs: &[&str]) {
        let Some(value) = self.text(name) else { return };
        if find_row(name).is_some_and(|row| row.harmless == value) {
            return;
        }
        let full = format!("{}/{name}", self.policy.prefix);
        self.problems.retain(|one| *one.annotation != *full || one.is_inadmissible);
        if !self.problems.iter().any(|one| *one.annotation == *full) {
            let reason = format!("no effect without {}", needs.join(" or "));
            self.push_shared(name, AnnotationConsequence::NoEffect, reason, None);
        }
    }

    /// A value without spaces around it.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        debug_assert!(find_row(name).is_some_and(|row| row.name == name), "{name} is not in the table");
        self.values.get(name).map(|value| value.trim())
    }

    pub(super) fn shared(&self, name: &str) -> Option<Arc<str>> {
        self.text(name).map(Arc::from)
    }

    pub(super) fn switch(&self, name: &str) -> Option<bool> {
        self.text(name).and_then(parse_switch)
    }

    /// A number; below 0 it counts as 0, above the range of 32 bits as the largest one.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        let number = self.text(name)?.parse::<i64>().ok()?;
        Some(u32::try_from(number.max(0)).unwrap_or(u32::MAX))
    }

    /// A text with variables. A text that cannot be read is reported with `consequence`.
    pub(super) fn nginx_text(&mut self, name: &str, consequence: AnnotationConsequence) -> Option<NginxText> {
        let value = self.text(name)?;
        match NginxText::parse(value) {
            Ok(text) => Some(with_raw_arguments(text)),
            Err(defect) => {
                self.push(name, consequence, defect, None);
                None
            }
        }
    }

    /// The object that a value names as `namespace/name`, or as a name in the namespace of the Ingress.
    pub(super) fn reference(&mut self, name: &str, kind: ClusterKind) -> Option<ObjectKey> {
        let value = self.text(name)?;
        match self.resolve(value, kind) {
            Ok(key) => Some(key),
            Err(reason) => {
                self.deny(name, reason);
                None
            }
        }
    }

    /// Resolves the name of an object.
    pub(super) fn resolve(&self, value: &str, kind: ClusterKind) -> Result<ObjectKey, String> {
        let (namespace, object) = value.split_once('/').unwrap_or((self.namespace, value));
        if namespace.is_empty() || object.is_empty() || object.contains('/') {
            return Err(format!("{value:?} is not of the form namespace/name"));
        }
        if namespace != &**self.namespace && !self.policy.allows_cross_namespace {
            return Err(format!(
                "{kind} {value} is in another namespace than the Ingress, which allow-cross-namespace-resources \
                 forbids"
            ));
        }
        Ok(ObjectKey::new(kind, namespace, object))
    }

    pub(super) fn finish(self) -> Vec<AnnotationProblem> {
        self.problems
    }
}
