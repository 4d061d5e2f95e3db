use std::sync::Arc;

use yumen_config::Kind;

use super::ObjectTexts;
use crate::compile::names::ObjectName;

fn route(id: &str) -> ObjectName {
    ObjectName::new(Kind::Routes, id)
}

#[test]
fn last_good_text_is_in_force_until_it_is_cleared() {
    let (mut texts, name) = (ObjectTexts::default(), route("a"));
    texts.set_newest(&name, "good".into());
    assert_eq!(texts.in_force(&name).map(|text| &**text), Some("good"));
    texts.set_last_good(&name, "good".into());
    texts.set_newest(&name, "broken".into());
    assert_eq!(texts.in_force(&name).map(|text| &**text), Some("good"));
    assert_eq!(
        texts.last_good().map(|(_, newest)| newest.clone()).collect::<Vec<_>>(),
        [Arc::from("broken")]
    );
    texts.clear_last_good(&name);
    assert_eq!(texts.in_force(&name).map(|text| &**text), Some("broken"));
}

#[test]
fn removed_object_has_no_text() {
    let (mut texts, name) = (ObjectTexts::default(), route("a"));
    texts.set_newest(&name, "broken".into());
    texts.set_last_good(&name, "good".into());
    texts.remove(&name);
    assert_eq!((texts.newest(&name), texts.in_force(&name), texts.last_good().count()), (None, None, 0));
}
