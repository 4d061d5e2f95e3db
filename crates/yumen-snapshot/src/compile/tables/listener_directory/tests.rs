use super::*;
use crate::scope::ListenProtocol;

fn settings(port: u16) -> ListenSettings {
    ListenSettings {
        address: ([0, 0, 0, 0], port).into(),
        protocol: ListenProtocol::Http,
        port,
        proxy_from: yumen_base::IpSet::default(),
        real_ip: None,
        http3: false,
        backlog: None,
    }
}

fn number(directory: &ListenerDirectory, id: &str) -> Option<(u16, u16)> {
    directory.get(id).map(|listener| (listener.number.slot, listener.number.epoch))
}

#[test]
fn a_listener_keeps_its_number_and_a_reused_slot_gets_another_epoch() {
    let mut directory = ListenerDirectory::default();
    assert!(directory.put(&"a".into(), 0, settings(1)));
    assert!(directory.put(&"b".into(), 0, settings(2)));
    assert_eq!((number(&directory, "a"), number(&directory, "b")), (Some((1, 0)), Some((2, 0))));
    assert!(directory.put(&"a".into(), 0, settings(3)));
    assert_eq!(number(&directory, "a"), Some((1, 0)));
    directory.remove("a");
    directory.remove("a");
    assert_eq!(number(&directory, "a"), None);
    assert!(directory.put(&"c".into(), 0, settings(1)));
    assert_eq!(number(&directory, "c"), Some((1, 1)));
    assert!(directory.put(&"d".into(), 0, settings(4)));
    assert_eq!(number(&directory, "d"), Some((3, 0)));
}

#[test]
fn equal_settings_stay_one_allocation() {
    let mut directory = ListenerDirectory::default();
    directory.put(&"a".into(), 0, settings(1));
    let before = directory.get("a").unwrap().settings.clone();
    directory.put(&"a".into(), 0, settings(1));
    assert!(Arc::ptr_eq(&before, &directory.get("a").unwrap().settings));
    directory.put(&"a".into(), 0, settings(2));
    assert!(!Arc::ptr_eq(&before, &directory.get("a").unwrap().settings));
}

#[test]
fn more_listeners_than_slots_are_refused_until_one_is_removed() {
    let mut directory = ListenerDirectory::default();
    for at in 1..=65535u32 {
        assert!(directory.put(&at.to_string().into(), 0, settings(1)));
    }
    assert!(!directory.put(&"next".into(), 0, settings(1)));
    directory.remove("7");
    assert!(directory.put(&"next".into(), 0, settings(1)));
    assert_eq!(number(&directory, "next"), Some((7, 1)));
}
