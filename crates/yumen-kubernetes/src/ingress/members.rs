//! The Ingresses of a host, in the order in which they are served.

use std::sync::Arc;

use super::host_names::host_name;
use crate::derived::{IngressGroup, ParsedIngress};
use crate::engine::TrackedView;
use crate::ingress_nginx::{ServerSnippet, SnippetPlan};

/// The Ingresses of a host, the first of which decide.
#[derive(Debug)]
pub(super) struct HostMembers<'t> {
    pub(super) primary: Vec<&'t Arc<ParsedIngress>>,
    pub(super) canaries: Vec<&'t Arc<ParsedIngress>>,
}

impl<'t> HostMembers<'t> {
    /// The server snippet of the host: that of the first Ingress with one.
    pub(super) fn server_snippet(&self) -> Option<(&'t Arc<ParsedIngress>, &'t ServerSnippet)> {
        self.primary.iter().find_map(|one| Some((*one, one.settings.snippets.server.as_ref()?)))
    }

    /// The plan of the server snippet.
    pub(super) fn server_plan(&self) -> Option<(&'t Arc<ParsedIngress>, &'t SnippetPlan)> {
        match self.server_snippet()? {
            (owner, ServerSnippet::Translated(plan)) => Some((owner, &**plan)),
            (_, ServerSnippet::Denying) => None,
        }
    }
}

/// The Ingresses of a group, in order.
pub(super) fn members_of<'t>(view: &TrackedView<'t>, group: &IngressGroup) -> HostMembers<'t> {
    let all = view.ingresses(group).filter_map(|member| view.parsed_ingress(&member.key()));
    let (canaries, primary) = all.partition(|one| one.is_canary());
    HostMembers { primary, canaries }
}

/// The first Ingress of a Service: its settings of balancing hold for all that use the Service.
pub(super) fn first_of_service<'t>(
    view: &TrackedView<'t>,
    namespace: &Arc<str>,
    service: &Arc<str>,
) -> Option<&'t Arc<ParsedIngress>> {
    let group = IngressGroup::Service { namespace: namespace.clone(), service: service.clone() };
    view.first_ingress(&group)
}

/// The further names of a host: those of the first Ingress with aliases. A name with rules of its own, or that an older
/// Ingress has as an alias, is left out with a finding.
pub(super) fn aliases_of<'t>(
    view: &TrackedView<'t>,
    host: &str,
    members: &HostMembers<'t>,
) -> (Vec<String>, Vec<(&'t Arc<ParsedIngress>, String)>) {
    let (mut granted, mut findings) = (Vec::new(), Vec::new());
    let with_aliases = members.primary.iter().find(|one| !one.settings.server.aliases.is_empty());
    let Some(owner) = with_aliases.filter(|_| !host.is_empty()) else { return (granted, findings) };
    // Of the hosts of one Ingress, the first one has the aliases.
    let mut hosts = owner.object.spec.rules.iter().filter_map(|rule| host_name(rule.host.as_deref()?));
    if hosts.next().as_deref() != Some(host) {
        return (granted, findings);
    }
    for alias in owner.settings.server.aliases.iter().filter_map(|alias| host_name(alias)) {
        let has_rules = view.ingresses(&IngressGroup::Host(alias.as_str().into())).len() > 0;
        let claims = members_of(view, &IngressGroup::Alias(alias.as_str().into()));
        let is_first = claims.primary.first().is_none_or(|first| first.key == owner.key);
        match (has_rules, is_first) {
            (true, _) => findings.push((*owner, format!("alias {alias} has rules of its own, which hold"))),
            (false, false) => {
                findings.push((*owner, format!("alias {alias} belongs to an older Ingress already")));
            }
            (false, true) => granted.push(alias),
        }
    }
    granted.sort_unstable();
    granted.dedup();
    (granted, findings)
}
