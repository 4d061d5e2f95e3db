use yumen_config::Kind;

use super::{AgreementKey, SettingsAgreements};
use crate::compile::names::ObjectName;

#[test]
fn objects_disagree_until_their_settings_are_equal() {
    let mut agreements = SettingsAgreements::default();
    let name = |id: &str| ObjectName::new(Kind::Routes, id);
    let on = |hash| {
        let subject = AgreementKey { plugin: "limit-count".into(), path: "group".into(), name: "g".into() };
        vec![(subject, hash)]
    };
    agreements.set(&name("a"), on(1));
    assert_eq!(agreements.set(&name("b"), on(2)), [name("a"), name("b")]);
    assert_eq!(agreements.disagreeing_objects().count(), 2);
    assert_eq!(agreements.problems_of(&name("a")).len(), 1);
    agreements.set(&name("b"), on(1));
    assert_eq!(agreements.disagreeing_objects().count(), 0);
    agreements.set(&name("a"), Vec::new());
    agreements.set(&name("b"), Vec::new());
    assert!(agreements.by_subject.is_empty() && agreements.by_object.is_empty());
}
