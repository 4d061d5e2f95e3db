use std::sync::Arc;

use yumen_config::Kind;
use yumen_plugin::kind::ConsumerKey;
use yumen_plugin::{Consumer, VouchedFields};

use super::{ConsumerDirectory, StagedConsumerKey};
use crate::compile::names::ObjectName;

fn consumer(username: &str) -> Arc<Consumer> {
    Arc::new(Consumer {
        username: username.into(),
        group_id: None,
        custom_id: None,
        labels: Box::default(),
        written: None,
        plugins: Box::default(),
        switched_off: Box::default(),
    })
}

#[test]
fn key_passes_to_the_next_claimant_when_it_is_released() {
    let mut directory = ConsumerDirectory::default();
    let name = |id: &str| ObjectName::new(Kind::Consumers, id);
    let parsed = ConsumerKey {
        key: b"k".as_slice().into(),
        auth: Arc::new(()),
        vouched_fields: VouchedFields::default(),
    };
    let keys = [StagedConsumerKey { plugin: "key-auth", parsed }];
    let owner = |directory: &ConsumerDirectory| {
        directory.index().find("key-auth", b"k").map(|identity| identity.consumer.username.to_string())
    };
    assert_eq!(directory.claim(&name("bob"), &consumer("bob"), None, &keys), []);
    let affected = directory.claim(&name("amy"), &consumer("amy"), None, &keys);
    assert_eq!(affected, [name("bob")], "the first by name gets the key");
    assert_eq!(owner(&directory).as_deref(), Some("amy"));
    assert_eq!(directory.duplicates_of(&name("bob")).count(), 1);
    directory.release(&name("amy"));
    assert_eq!(owner(&directory).as_deref(), Some("bob"));
    assert_eq!(directory.objects_with_duplicates().count(), 0);
    directory.release(&name("bob"));
    assert_eq!(owner(&directory), None);
    assert!(directory.claims.is_empty() && directory.claimed.is_empty());
}
