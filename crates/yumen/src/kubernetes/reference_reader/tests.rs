//! Results of reads and events of watches, without an API server.

use yumen_kubernetes_client::ApiServerConfig;

use super::*;

struct ReaderCase {
    reader: ReferenceReader,
    key: ObjectKey,
}

impl ReaderCase {
    /// A reader that reads one Secret.
    fn new() -> ReaderCase {
        let server = ApiServerConfig::from_url("http://127.0.0.1:1", None, None).unwrap();
        let mut reader = ReferenceReader::new(ApiClient::new(&server).unwrap());
        let key = ObjectKey::new(ClusterKind::Secret, "shop", "pair");
        reader.require([key.clone()].into_iter().collect());
        let mut case = ReaderCase { reader, key };
        case.begin();
        case
    }

    /// Marks the read as running.
    fn begin(&mut self) {
        let one = self.required();
        (one.due, one.reading) = (None, ReadProgress::Running);
    }

    fn required(&mut self) -> &mut RequiredObject {
        self.reader.required.get_mut(&self.key).unwrap()
    }

    fn take(&mut self, result: Result<RawObject, ApiError>) -> Option<ReferenceRead> {
        self.reader.take(self.key.clone(), result)
    }

    /// Whether another read is due at once.
    fn is_due(&mut self) -> bool {
        self.required().due.is_some_and(|due| due <= Instant::now())
    }
}

fn secret(version: &str) -> RawObject {
    let json = r#"{"metadata": {"namespace": "shop", "name": "pair"}, "data": {}}"#;
    RawObject {
        namespace: "shop".into(),
        name: "pair".into(),
        uid: "u".into(),
        resource_version: version.into(),
        json: json.into(),
    }
}

#[tokio::test]
async fn a_denied_object_counts_as_absent_and_does_not_hold_the_start() {
    let mut case = ReaderCase::new();
    assert!(!case.reader.is_settled());
    let read = case.take(Err(ApiError::Denied("get secrets".into())));
    assert!(matches!(read, Some(ReferenceRead::Denied { is_kept: false, .. })));
    assert!(case.reader.is_settled());
    assert!(case.required().due.is_some() && !case.is_due());
}

#[tokio::test]
async fn delivered_content_outlives_a_denial() {
    let mut case = ReaderCase::new();
    case.take(Ok(secret("4")));
    case.begin();
    let read = case.take(Err(ApiError::Denied("get secrets".into())));
    assert!(matches!(read, Some(ReferenceRead::Denied { is_kept: true, .. })));
}

#[tokio::test]
async fn a_failed_read_is_no_answer() {
    let mut case = ReaderCase::new();
    assert!(case.take(Err(ApiError::Unreachable("x".into()))).is_none());
    assert!(!case.reader.is_settled());
    assert!(case.required().due.is_some());
}

#[tokio::test]
async fn only_a_version_that_was_not_delivered_is_read_again() {
    let mut case = ReaderCase::new();
    case.take(Ok(secret("4")));
    assert!(case.reader.is_settled());
    case.reader.observe(ClusterKind::Secret, &WatchOutput::Replaced(vec![secret("4")]));
    assert!(!case.is_due());
    case.reader.observe(ClusterKind::Secret, &WatchOutput::Changed(RawObjectChange::Put(secret("5"))));
    assert!(case.is_due());
    assert!(case.reader.is_settled(), "the delivered version serves meanwhile");
}

#[tokio::test]
async fn a_change_during_a_read_causes_another() {
    let mut case = ReaderCase::new();
    case.reader.observe(ClusterKind::Secret, &WatchOutput::Changed(RawObjectChange::Put(secret("5"))));
    assert!(!case.is_due());
    case.take(Ok(secret("4")));
    assert!(case.is_due());
}

#[tokio::test]
async fn an_object_whose_kind_cannot_be_followed_is_read_periodically() {
    let mut case = ReaderCase::new();
    case.reader.observe(ClusterKind::Secret, &WatchOutput::Denied("watch secrets".into()));
    case.take(Ok(secret("4")));
    assert!(case.is_due(), "it may have changed during the read");
    case.begin();
    case.take(Ok(secret("4")));
    assert!(case.required().due.is_some() && !case.is_due());
    case.reader.observe(ClusterKind::Secret, &WatchOutput::Replaced(vec![secret("4")]));
    case.begin();
    case.take(Ok(secret("4")));
    assert!(case.required().due.is_none());
}
