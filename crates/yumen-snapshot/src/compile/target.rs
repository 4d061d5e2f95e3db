//! The upstream of a route, service or stream route: one of its own, or an upstream object.

use std::sync::Arc;

use yumen_base::Problem;
use yumen_config::Kind;
use yumen_config::resource as config;

use super::Compiler;
use super::names::ObjectName;
use crate::upstream::UpstreamSlotId;

/// The upstream of a route, service or stream route.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum StagedTarget {
    None,
    /// The object's own upstream.
    Inline(UpstreamSlotId),
    /// An upstream object, by id.
    Named(Arc<str>),
}

impl StagedTarget {
    /// The upstream object.
    pub(super) fn reference(&self) -> Option<ObjectName> {
        match self {
            StagedTarget::Named(id) => Some(ObjectName::new(Kind::Upstreams, id.clone())),
            StagedTarget::None | StagedTarget::Inline(_) => None,
        }
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
    ) -> Result<StagedTarget, Vec<Problem>> {
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
}
