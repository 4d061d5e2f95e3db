//! The upstream of a route, service or stream route: one of its own, or an upstream object.

use std::collections::BTreeSet;
use std::sync::Arc;

use yumen_actions::{BackendEdits, CanaryRules};
use yumen_base::Problem;
use yumen_config::resource as config;
use yumen_config::{InvalidSettings, Kind};

use super::Compiler;
use super::names::ObjectName;
use crate::route::{CanaryTarget, RouteTarget, WeightedTarget, WeightedTargets};
use crate::upstream::UpstreamSlotId;

/// The upstream of a route, service or stream route.
#[derive(Debug, Clone)]
pub(super) enum StagedTarget {
    None,
    /// The object's own upstream.
    Inline(UpstreamSlotId),
    /// An upstream object, by id.
    Named(Arc<str>),
    /// Weighted backends.
    Weighted(Arc<[StagedBackend]>),
}

/// A weighted backend before its upstream is looked up.
#[derive(Debug, Clone)]
pub(super) struct StagedBackend {
    weight: u32,
    upstream: Option<Arc<str>>,
    status: u16,
    edits: Option<Arc<BackendEdits>>,
    canary: Option<Arc<CanaryRules>>,
}

/// Compiles the backends of a route or stream route.
pub(super) fn backends(written: &[config::BackendSpec]) -> Result<StagedTarget, InvalidSettings> {
    let staged = written.iter().enumerate().map(|(at, backend)| {
        let edits = backend.actions.as_ref().map(BackendEdits::build).transpose();
        let canary = backend.canary.as_ref().map(CanaryRules::build).transpose();
        Ok(StagedBackend {
            weight: backend.weight,
            upstream: backend.upstream_id.as_ref().map(|id| id.0.clone()),
            status: backend.status.unwrap_or(503),
            edits: edits.map_err(|refused| refused.under(&format!("backends[{at}].actions")))?.map(Arc::new),
            canary: canary.map_err(|refused| refused.under(&format!("backends[{at}].canary")))?.map(Arc::new),
        })
    });
    Ok(StagedTarget::Weighted(staged.collect::<Result<_, _>>()?))
}

impl StagedTarget {
    /// The upstream objects.
    pub(super) fn references(&self) -> impl Iterator<Item = ObjectName> {
        let (named, backends) = match self {
            StagedTarget::Named(id) => (Some(id), &[][..]),
            StagedTarget::Weighted(backends) => (None, &**backends),
            StagedTarget::None | StagedTarget::Inline(_) => (None, &[][..]),
        };
        // Backends may name one upstream twice, and a reference is added and removed once.
        let ids: BTreeSet<&Arc<str>> = backends.iter().filter_map(|one| one.upstream.as_ref()).collect();
        named.into_iter().chain(ids).map(|id| ObjectName::new(Kind::Upstreams, id.clone()))
    }
}

impl Compiler {
    /// The target of an object; its own upstream is placed. The last step of staging that can fail, since it changes the
    /// upstream in force.
    pub(super) fn stage_target(
        &mut self,
        name: &ObjectName,
        inline: Option<config::UpstreamSpec>,
        id: Option<config::ResourceId>,
        backends: Option<StagedTarget>,
    ) -> Result<StagedTarget, Vec<Problem>> {
        if let Some(weighted) = backends {
            self.remove_upstream(name);
            return Ok(weighted);
        }
        // An id wins over an upstream in the object, as in APISIX.
        if let Some(id) = id {
            self.remove_upstream(name);
            return Ok(StagedTarget::Named(id.0));
        }
        match inline {
            Some(written) => self
                .assign_upstream(name, &written, "upstream")
                .map(StagedTarget::Inline)
                .map_err(|problem| vec![problem]),
            None => {
                self.remove_upstream(name);
                Ok(StagedTarget::None)
            }
        }
    }

    /// Links weighted backends. The indexes of those whose upstream is missing go to `missing`, with its id. With
    /// `keeps_sessions` or a canary, backends of weight 0 stay for their sessions and for the rules.
    pub(super) fn weighted_target(
        &self,
        backends: &[StagedBackend],
        keeps_sessions: bool,
        mut missing: impl FnMut(usize, &str),
    ) -> RouteTarget {
        let mut targets = Vec::with_capacity(backends.len());
        let keeps_idle = keeps_sessions || backends.iter().any(|backend| backend.canary.is_some());
        let mut canary = None;
        for (at, backend) in backends.iter().enumerate() {
            let name = backend.upstream.as_ref().map(|id| ObjectName::new(Kind::Upstreams, id.clone()));
            let slot = name.as_ref().and_then(|name| self.upstreams.slot_of(name));
            if let (None, Some(id)) = (slot, &backend.upstream) {
                missing(at, id);
            }
            if backend.weight == 0 && !keeps_idle {
                continue;
            }
            let (weight, status) = (backend.weight, backend.status);
            let key = backend.upstream.as_deref().map_or(0, key_of);
            if let Some(rules) = backend.canary.as_ref().filter(|_| slot.is_some()) {
                canary = Some(CanaryTarget { at: targets.len(), rules: rules.clone() });
            }
            targets.push(WeightedTarget { weight, slot, status, key, edits: backend.edits.clone() });
        }
        // A single upstream without edits needs no choice.
        if let [WeightedTarget { weight: 1.., slot: Some(slot), edits: None, .. }] = &*targets {
            return RouteTarget::Upstream(*slot);
        }
        let total = targets.iter().map(|target| u64::from(target.weight)).sum();
        RouteTarget::Weighted(Arc::new(WeightedTargets { targets: targets.into(), total, canary }))
    }
}

/// The name of a backend in sessions: equal in all processes and versions (FNV-1a), since gateways share sessions.
fn key_of(upstream: &str) -> u64 {
    upstream
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
