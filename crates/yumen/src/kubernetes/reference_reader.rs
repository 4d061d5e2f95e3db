//! Reads Secrets and ConfigMaps by name, and only those that an object refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use yumen_kubernetes::{ClusterChange, ClusterKind, ObjectKey, decode};
use yumen_kubernetes_client::{ApiClient, ApiError, RawObject, RawObjectChange, WatchOutput};

use super::api_paths::ServedVersions;

/// Reads at once; more wait.
const READS_MAX: usize = 16;
/// Pause before a failed read is repeated.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause before a denied read is repeated, and the one between reads of objects whose metadata cannot be followed.
const PAUSE_WITHOUT_RIGHT: Duration = Duration::from_secs(30);

/// The state of one required object.
#[derive(Debug, Default)]
struct RequiredObject {
    /// `resourceVersion` of the content that was delivered.
    delivered: Option<Box<str>>,
    reading: ReadProgress,
    /// Denied reads in a row.
    denials: u32,
    /// Whether a read ended with the object, its absence, or a denial.
    is_answered: bool,
    due: Option<Instant>,
}

/// The read of an object that is running, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ReadProgress {
    #[default]
    Idle,
    Running,
    /// Running, and the object changed since it began.
    Overtaken,
}

/// The outcome of a read.
pub(super) enum ReferenceRead {
    /// The content, or that the object does not exist.
    Answer(Box<ClusterChange>),
    /// The identity may not read the object; the text names the missing rule. An object that was never read counts as
    /// absent; content that was delivered stays in force, since an API server that starts denies rights that it grants later.
    Denied { key: ObjectKey, rule: String, is_kept: bool },
}

/// The required objects and the running reads.
pub(super) struct ReferenceReader {
    client: ApiClient,
    required: BTreeMap<ObjectKey, RequiredObject>,
    /// Kinds whose metadata the identity may not follow.
    unfollowed: BTreeSet<ClusterKind>,
    reads: JoinSet<(ObjectKey, Result<RawObject, ApiError>)>,
}

impl ReferenceReader {
    pub(super) fn new(client: ApiClient) -> ReferenceReader {
        ReferenceReader {
            client,
            required: BTreeMap::new(),
            unfollowed: BTreeSet::new(),
            reads: JoinSet::new(),
        }
    }

    /// Replaces the set of required objects.
    pub(super) fn require(&mut self, wanted: BTreeSet<ObjectKey>) {
        self.required.retain(|key, _| wanted.contains(key));
        let now = Instant::now();
        for key in wanted {
            self.required
                .entry(key)
                .or_insert_with(|| RequiredObject { due: Some(now), ..RequiredObject::default() });
        }
    }

    /// Whether every required object was answered at least once.
    pub(super) fn is_settled(&self) -> bool {
        self.required.values().all(|one| one.is_answered)
    }

    /// Takes an event of a watch of metadata.
    pub(super) fn observe(&mut self, kind: ClusterKind, output: &WatchOutput) {
        match output {
            WatchOutput::Replaced(objects) => {
                self.unfollowed.remove(&kind);
                let versions: BTreeMap<ObjectKey, &str> = objects
                    .iter()
                    .map(|one| (ObjectKey::new(kind, &one.namespace, &one.name), &*one.resource_version))
                    .collect();
                let of_kind = self.required.iter_mut().filter(|(key, _)| key.kind == kind);
                for (key, one) in of_kind {
                    if versions.get(key).copied() != one.delivered.as_deref() {
                        one.read_again();
                    }
                }
            }
            WatchOutput::Changed(RawObjectChange::Put(object) | RawObjectChange::Delete(object)) => {
                let key = ObjectKey::new(kind, &object.namespace, &object.name);
                if let Some(one) = self.required.get_mut(&key)
                    && one.delivered.as_deref() != Some(&*object.resource_version)
                {
                    one.read_again();
                }
            }
            WatchOutput::Denied(_) => {
                self.unfollowed.insert(kind);
                let of_kind = self.required.iter_mut().filter(|(key, _)| key.kind == kind);
                of_kind.for_each(|(_, one)| one.read_again());
            }
            WatchOutput::Absent | WatchOutput::Failed(_) => {}
        }
    }

    /// Starts the reads that are due.
    pub(super) fn start_due(&mut self, versions: &ServedVersions) {
        let now = Instant::now();
        let due = self.required.iter_mut().filter(|(_, one)| one.due.is_some_and(|due| due <= now));
        for (key, one) in due {
            if self.reads.len() >= READS_MAX {
                break;
            }
            (one.due, one.reading) = (None, ReadProgress::Running);
            let (client, path, key) = (self.client.clone(), versions.path(key), key.clone());
            self.reads.spawn(async move { (key, client.get(&path).await) });
        }
    }

    /// Waits for the next answer, or until a read is due (`None`).
    pub(super) async fn next(&mut self) -> Option<ReferenceRead> {
        let now = Instant::now();
        let due = self.required.values().filter_map(|one| one.due).min();
        let far = now + Duration::from_secs(3600);
        // A read that is due waits for one of the running reads to end.
        let wake = if self.reads.len() >= READS_MAX { far } else { due.unwrap_or(far) };
        tokio::select! {
            Some(done) = self.reads.join_next() => {
                let (key, result) = done.ok()?;
                self.take(key, result)
            }
            () = sleep_until(wake) => None,
        }
    }

    /// A further answer that is there already.
    pub(super) fn try_next(&mut self) -> Option<ReferenceRead> {
        let (key, result) = self.reads.try_join_next()?.ok()?;
        self.take(key, result)
    }

    fn take(&mut self, key: ObjectKey, result: Result<RawObject, ApiError>) -> Option<ReferenceRead> {
        // The object may not be required any more.
        let one = self.required.get_mut(&key)?;
        let was_overtaken = one.reading == ReadProgress::Overtaken;
        one.reading = ReadProgress::Idle;
        if !matches!(result, Err(ApiError::Denied(_))) {
            one.denials = 0;
        }
        one.is_answered |= matches!(result, Ok(_) | Err(ApiError::NotFound(_) | ApiError::Denied(_)));
        if was_overtaken {
            one.due = Some(Instant::now());
        } else if self.unfollowed.contains(&key.kind) {
            // No watch reports its changes.
            one.due = Some(Instant::now() + PAUSE_WITHOUT_RIGHT);
        }
        match result {
            Ok(object) => {
                one.delivered = Some(object.resource_version.clone());
                let change = match decode(key.kind, &object.json) {
                    Ok(decoded) => ClusterChange::Put(decoded),
                    Err(error) => ClusterChange::Undecodable(key, error.message),
                };
                Some(ReferenceRead::Answer(Box::new(change)))
            }
            Err(ApiError::NotFound(_)) => {
                one.delivered = None;
                Some(ReferenceRead::Answer(Box::new(ClusterChange::Delete(key))))
            }
            Err(ApiError::Denied(rule)) => {
                one.denials += 1;
                let pause = Duration::from_secs(1 << one.denials.min(5)).min(PAUSE_WITHOUT_RIGHT);
                one.due = Some(Instant::now() + pause);
                Some(ReferenceRead::Denied { key, rule, is_kept: one.delivered.is_some() })
            }
            Err(error) => {
                tracing::debug!(%key, %error, "read of a referenced object failed");
                one.due = Some(Instant::now() + PAUSE);
                None
            }
        }
    }
}

impl RequiredObject {
    fn read_again(&mut self) {
        match self.reading {
            ReadProgress::Idle => self.due = Some(Instant::now()),
            ReadProgress::Running | ReadProgress::Overtaken => self.reading = ReadProgress::Overtaken,
        }
    }
}

#[cfg(test)]
mod tests;
