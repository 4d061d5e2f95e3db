//! Consumers by name and key, in clones that share structure.

use std::sync::Arc;

use super::{Consumer, ConsumerIdentity, ConsumerIndex};

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

fn identity(consumer: &Arc<Consumer>, credential_id: Option<&str>) -> Arc<ConsumerIdentity> {
    let credential_id = credential_id.map(Box::from);
    vouching(consumer, credential_id, &[])
}

fn vouching(
    consumer: &Arc<Consumer>,
    credential_id: Option<Box<str>>,
    names: &[&str],
) -> Arc<ConsumerIdentity> {
    let vouched_fields = names.iter().map(|name| Box::from(*name)).collect();
    Arc::new(ConsumerIdentity {
        consumer: consumer.clone(),
        credential_id,
        auth: Arc::new(5u8),
        vouched_fields,
    })
}

fn found<'a>(consumers: &'a ConsumerIndex, plugin: &str, key: &[u8]) -> Option<&'a str> {
    consumers.find(plugin, key).map(|identity| &*identity.consumer.username)
}

#[test]
fn keys_belong_to_one_plugin() {
    let (jack, rose) = (consumer("jack"), consumer("rose"));
    let mut consumers = ConsumerIndex::default();
    assert!(consumers.insert_key("key-auth", b"k", identity(&jack, None)).is_none());
    assert!(consumers.insert_key("jwt-auth", b"k", identity(&rose, Some("c1"))).is_none());
    assert_eq!(found(&consumers, "key-auth", b"k"), Some("jack"));
    assert_eq!(found(&consumers, "jwt-auth", b"k"), Some("rose"));
    assert_eq!(found(&consumers, "basic-auth", b"k"), None);
    assert_eq!(found(&consumers, "key-auth", b"K"), None);
    let rose = consumers.find("jwt-auth", b"k").unwrap();
    assert_eq!(rose.credential_id.as_deref(), Some("c1"));
    assert_eq!(rose.auth.downcast_ref::<u8>(), Some(&5));
}

#[test]
fn reassigned_key_names_its_former_owner() {
    let (jack, rose) = (consumer("jack"), consumer("rose"));
    let mut consumers = ConsumerIndex::default();
    consumers.insert_key("key-auth", b"k", identity(&jack, None));
    let before = consumers.insert_key("key-auth", b"k", identity(&rose, None)).unwrap();
    assert_eq!(&*before.consumer.username, "jack");
    assert_eq!(found(&consumers, "key-auth", b"k"), Some("rose"));
    consumers.remove_key("key-auth", b"k");
    consumers.remove_key("no-such", b"k");
    assert_eq!(found(&consumers, "key-auth", b"k"), None);
}

#[test]
fn vouched_fields_are_those_of_all_identities_of_the_plugin() {
    let jack = consumer("jack");
    let mut consumers = ConsumerIndex::default();
    consumers.insert_key("wolf-rbac", b"a", vouching(&jack, None, &["X-UserId"]));
    consumers.insert_key("wolf-rbac", b"b", vouching(&jack, None, &["X-UserId", "Y-UserId"]));
    consumers.insert_key("other", b"b", vouching(&jack, None, &["Z-UserId"]));
    assert_eq!(consumers.vouched_fields("wolf-rbac"), ["X-UserId", "Y-UserId"]);
    let scoped = ConsumerIndex::default().before(&Arc::new(consumers.clone()));
    assert_eq!(scoped.vouched_fields("wolf-rbac"), ["X-UserId", "Y-UserId"]);
    consumers.insert_key("wolf-rbac", b"b", vouching(&jack, None, &["Y-UserId"]));
    assert_eq!(consumers.vouched_fields("wolf-rbac"), ["X-UserId", "Y-UserId"]);
    consumers.remove_key("wolf-rbac", b"a");
    assert_eq!(consumers.vouched_fields("wolf-rbac"), ["Y-UserId"]);
    assert!(consumers.vouched_fields("key-auth").is_empty());
}

#[test]
fn a_copy_is_not_changed_by_its_successor() {
    let jack = consumer("jack");
    let mut old = ConsumerIndex::default();
    old.insert(jack.clone());
    old.insert_key("key-auth", b"k", identity(&jack, None));
    let mut new = old.clone();
    new.remove("jack");
    new.remove_key("key-auth", b"k");
    new.insert(consumer("rose"));
    new.insert(consumer("lily"));
    assert!(old.named("jack").is_some() && old.named("rose").is_none());
    assert_eq!(found(&old, "key-auth", b"k"), Some("jack"));
    assert!(new.named("jack").is_none() && found(&new, "key-auth", b"k").is_none());
    assert_eq!((old.len(), new.len(), ConsumerIndex::default().is_empty()), (1, 2, true));
}

#[test]
fn identifying_a_consumer_replaces_what_the_client_claimed() {
    let text = "GET / HTTP/1.1\nHost: a\nX-Consumer-Username: root\nX-Credential-Identifier: x\n\
        X-Consumer-Custom-ID: 0\nX_Consumer_Username: root\nX.Credential_identifier: x\nx-consumer_custom_id: 0\n\
        X_Other: kept";
    let jack = consumer("jack");
    let mut head = crate::RequestHead::default();
    let bytes = format!("{}\r\n\r\n", text.replace('\n', "\r\n"));
    yumen_http::parse::request(bytes.as_bytes(), 0, &Default::default(), &mut head).unwrap();
    crate::test_exchange::with_exchange(false, "GET / HTTP/1.0", |outer| {
        let mut ex =
            crate::Exchange::new(head, outer.client.connection, outer.now, outer.host, outer.consumers);
        ex.identify(&jack, None);
        let fields = &ex.request.fields;
        assert_eq!(fields.all("x-consumer-username").collect::<Vec<_>>(), [b"jack"]);
        let names: Vec<&[u8]> = fields.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [&b"Host"[..], b"X_Other", b"X-Consumer-Username"]);
    });
}
