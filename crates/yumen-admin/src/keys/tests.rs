use yumen_config::node::{AdminKey, AdminRole, SecretText};
use yumen_store::{MemoryMedium, Store};

use super::{configured, ensure, holder_of_digest, sha256, stored};

#[tokio::test]
async fn the_first_start_makes_keys_once_and_keeps_digests() {
    let store = MemoryMedium::store(10).unwrap();
    let keys = ensure(&store).await.unwrap().expect("keys on the first start");
    assert!(keys.admin.len() == 40 && keys.admin != keys.viewer);
    assert_eq!(ensure(&store).await.unwrap(), None);
    let state = store.state();
    assert!(state.settings().all(|(_, text)| !text.contains(&keys.admin)));
    let records = stored(&state);
    for (key, name, role) in
        [(&keys.admin, "admin", AdminRole::Admin), (&keys.viewer, "viewer", AdminRole::Viewer)]
    {
        let holder = holder_of_digest(&sha256(key), records.iter()).expect("a holder");
        assert_eq!((holder.name.as_str(), holder.role), (name, role));
    }
    assert_eq!(holder_of_digest(&sha256(""), records.iter()), None);
    assert_eq!(format!("{keys:?}"), "NewKeys");
}

#[test]
fn a_strange_setting_gives_no_keys() {
    let state = |text: &str| {
        let settings = [("admin_keys".into(), text.into())];
        yumen_store::StoreState::new(yumen_store::Revision(1), [], settings)
    };
    for text in ["", "{}", "[1]", r#"[{"name":"a","role":"root","sha256":""}]"#] {
        assert!(stored(&state(text)).is_empty(), "{text}");
    }
}

#[test]
fn configured_keys_are_not_kept_in_the_clear() {
    let key =
        AdminKey { name: "ada".into(), key: SecretText("0123456789abcdef".into()), role: AdminRole::Viewer };
    let keys = configured(std::slice::from_ref(&key));
    assert!(!format!("{keys:?} {key:?}").contains("0123456789abcdef"));
    assert_eq!(holder_of_digest(&sha256(&key.key.0), keys.iter()).unwrap().role, AdminRole::Viewer);
}
