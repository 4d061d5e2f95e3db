//! The decisions of leader election, without I/O: client-go's rules with 15 s, 10 s and 2 s.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use yumen_base::Now;
use yumen_base::time::utc_text;

use crate::error::ApiError;
use crate::lease::LeaseSettings;

/// The time after which others may take a lease that does not change, in seconds.
const DURATION_S: u64 = 15;
/// The time after the start of the last renewal at which the holder stops writing, in milliseconds.
const RENEW_DEADLINE_MS: u64 = 10_000;
/// The pause between renewals and between attempts to take the lease, in milliseconds.
const RETRY_MS: u64 = 2_000;

/// The next request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LeaseStep {
    Read,
    Create {
        body: String,
    },
    /// A merge patch with the version as precondition.
    Patch {
        body: String,
    },
    Pause {
        until_ms: u64,
    },
}

/// The members of a Lease that count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct LeaseRecord {
    holder: String,
    resource_version: String,
    transitions: u64,
    duration_s: u64,
    acquired: Option<String>,
}

#[derive(Debug)]
enum LeaseKnowledge {
    Unknown,
    /// The Lease does not exist.
    Missing,
    /// The Lease, and the moment at which this version was first seen. Only this clock counts: those of other nodes may
    /// differ.
    Seen {
        record: LeaseRecord,
        since_ms: u64,
    },
}

/// The election as this process sees it.
#[derive(Debug)]
pub(super) struct LeaseMachine {
    settings: LeaseSettings,
    knowledge: LeaseKnowledge,
    next_at_ms: u64,
    held_until_ms: Option<u64>,
}

impl LeaseMachine {
    pub(super) fn new(settings: LeaseSettings) -> LeaseMachine {
        LeaseMachine { settings, knowledge: LeaseKnowledge::Unknown, next_at_ms: 0, held_until_ms: None }
    }

    /// The moment until which this process may write, on the monotonic clock; absent if it does not hold the lease.
    pub(super) fn held_until_ms(&self) -> Option<u64> {
        self.held_until_ms
    }

    pub(super) fn next(&mut self, now: Now) -> LeaseStep {
        let now_ms = now.mono_ms();
        if now_ms < self.next_at_ms {
            return LeaseStep::Pause { until_ms: self.next_at_ms };
        }
        match &self.knowledge {
            LeaseKnowledge::Unknown => LeaseStep::Read,
            LeaseKnowledge::Missing => LeaseStep::Create { body: self.creation(now) },
            LeaseKnowledge::Seen { record, since_ms } => {
                let is_ours = record.holder == self.settings.identity;
                let ends_ms = since_ms + record.duration_s * 1000;
                // An empty holder released the lease.
                if is_ours || record.holder.is_empty() || now_ms >= ends_ms {
                    LeaseStep::Patch { body: self.takeover(record, now) }
                } else {
                    LeaseStep::Read
                }
            }
        }
    }

    pub(super) fn take_read(&mut self, result: Result<Bytes, ApiError>, now: Now) {
        let now_ms = now.mono_ms();
        match result.map(|json| LeaseRecord::decode(&json)) {
            Ok(Some(record)) => {
                let may_take = record.holder.is_empty() || record.holder == self.settings.identity;
                if record.holder != self.settings.identity {
                    self.held_until_ms = None;
                }
                self.observe(record, now_ms);
                self.next_at_ms = if may_take { now_ms } else { now_ms + RETRY_MS };
            }
            Err(ApiError::NotFound(_)) => {
                self.knowledge = LeaseKnowledge::Missing;
                self.held_until_ms = None;
                self.next_at_ms = now_ms;
            }
            // The known record stays: its time runs on.
            Ok(None) | Err(_) => self.next_at_ms = now_ms + RETRY_MS,
        }
    }

    /// `sent` is the moment before the request.
    pub(super) fn take_write(&mut self, result: Result<Bytes, ApiError>, sent: Now, now: Now) {
        let now_ms = now.mono_ms();
        self.next_at_ms = now_ms + RETRY_MS;
        match result.map(|json| LeaseRecord::decode(&json)) {
            Ok(Some(record)) if record.holder == self.settings.identity => {
                self.observe(record, now_ms);
                self.held_until_ms = Some(sent.mono_ms() + RENEW_DEADLINE_MS);
            }
            // Another process wrote in between, or removed the Lease: read before the next decision.
            Ok(_) | Err(ApiError::Conflict(_) | ApiError::NotFound(_)) => {
                self.knowledge = LeaseKnowledge::Unknown;
                self.next_at_ms = now_ms;
            }
            // The write may have happened or not; a repeat conflicts if it did, and is read then.
            Err(_) => {}
        }
        self.held_until_ms = self.held_until_ms.filter(|&until_ms| until_ms > now_ms);
    }

    /// Ends holding at the deadline.
    pub(super) fn lose(&mut self) {
        self.held_until_ms = None;
    }

    /// The patch that gives the lease away, if it is held.
    pub(super) fn release(&mut self, now: Now) -> Option<String> {
        self.held_until_ms.take()?;
        let LeaseKnowledge::Seen { record, .. } = &self.knowledge else { return None };
        let body = json!({
            "metadata": {"resourceVersion": record.resource_version},
            // As client-go does: a holder that waits by the old duration waits 1 s at most.
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_time(now)},
        });
        Some(body.to_string())
    }

    fn observe(&mut self, record: LeaseRecord, now_ms: u64) {
        let since_ms = match &self.knowledge {
            LeaseKnowledge::Seen { record: known, since_ms }
                if known.resource_version == record.resource_version =>
            {
                *since_ms
            }
            _ => now_ms,
        };
        self.knowledge = LeaseKnowledge::Seen { record, since_ms };
    }

    fn creation(&self, now: Now) -> String {
        let time = micro_time(now);
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.settings.name, "namespace": self.settings.namespace},
            "spec": {
                "holderIdentity": self.settings.identity,
                "leaseDurationSeconds": DURATION_S,
                "acquireTime": time,
                "renewTime": time,
                "leaseTransitions": 0,
            },
        })
        .to_string()
    }

    fn takeover(&self, record: &LeaseRecord, now: Now) -> String {
        let is_ours = record.holder == self.settings.identity;
        let time = micro_time(now);
        let acquired = record.acquired.clone().filter(|_| is_ours).unwrap_or_else(|| time.clone());
        json!({
            "metadata": {"resourceVersion": record.resource_version},
            "spec": {
                "holderIdentity": self.settings.identity,
                "leaseDurationSeconds": DURATION_S,
                "acquireTime": acquired,
                "renewTime": time,
                "leaseTransitions": record.transitions + u64::from(!is_ours),
            },
        })
        .to_string()
    }
}

impl LeaseRecord {
    /// `None` for an object that is no Lease.
    fn decode(json: &[u8]) -> Option<LeaseRecord> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct LeaseMetadata {
            resource_version: String,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct LeaseSpec {
            holder_identity: Option<String>,
            lease_duration_seconds: Option<u64>,
            lease_transitions: Option<u64>,
            acquire_time: Option<String>,
        }
        #[derive(Deserialize)]
        struct LeaseObject {
            metadata: LeaseMetadata,
            #[serde(default)]
            spec: LeaseSpec,
        }
        let lease: LeaseObject = serde_json::from_slice(json).ok()?;
        Some(LeaseRecord {
            holder: lease.spec.holder_identity.unwrap_or_default(),
            resource_version: lease.metadata.resource_version,
            transitions: lease.spec.lease_transitions.unwrap_or(0),
            duration_s: lease.spec.lease_duration_seconds.unwrap_or(DURATION_S),
            acquired: lease.spec.acquire_time,
        })
    }
}

/// The form of `MicroTime`: RFC 3339 with six digits of a second.
fn micro_time(now: Now) -> String {
    let whole = utc_text(now.unix_s());
    format!("{}.{:06}Z", whole.trim_end_matches('Z'), now.unix_ms % 1000 * 1000)
}

#[cfg(test)]
mod tests;
