//! The form of a simulated response, as the error responses of its route define it.

use yumen_plugin::Exchange;

use super::simulation::SimulatedResponse;
use crate::{Snapshot, UpstreamSlotId};

/// The response in the form of the route. A page of another upstream is a remark, since explaining sends no request.
pub(super) fn formed(
    snapshot: &Snapshot,
    ex: &Exchange<'_>,
    answered: SimulatedResponse,
    remarks: &mut Vec<String>,
) -> SimulatedResponse {
    let Some(rules) = &ex.response.errors else { return answered };
    let status = answered.response.status;
    // Only the gateway itself answers for an upstream without endpoints.
    let lacks_endpoint = answered.plugin.is_none() && status == 503;
    if let Some(pages) = &rules.pages
        && (pages.covers(status) || pages.without_endpoint && lacks_endpoint)
    {
        let upstream = pages.upstream.get().and_then(|slot| snapshot.upstream(UpstreamSlotId(slot)));
        let name = upstream.map_or("an upstream that is missing", |upstream| &upstream.origin);
        remarks.push(format!("{name} responds in place of the {status}"));
    }
    SimulatedResponse { response: rules.formed(answered.response), ..answered }
}
