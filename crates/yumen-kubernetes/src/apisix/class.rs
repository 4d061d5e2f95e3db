//! The class of objects: those of other controllers are left alone.

use crate::engine::TrackedView;
use crate::model::{ClusterKind, IngressClassObject, ObjectKey};

const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

/// Whether an object with this `ingressClassName` is served: the class names this controller. Without a name, the
/// default class decides.
pub(super) fn is_served(view: &TrackedView<'_>, name: Option<&str>) -> bool {
    let is_own = |class: &IngressClassObject| class.spec.controller == view.settings().controller_name;
    match name.filter(|name| !name.is_empty()) {
        Some(name) => view
            .get::<IngressClassObject>(&ObjectKey::new(ClusterKind::IngressClass, "", name))
            .is_some_and(|class| is_own(class)),
        None => {
            let classes = view.list_all::<IngressClassObject>(ClusterKind::IngressClass);
            let is_default = |class: &IngressClassObject| {
                class.meta.annotations.get(IS_DEFAULT).is_some_and(|value| &**value == "true")
            };
            classes.iter().any(|class| is_own(class) && is_default(class))
        }
    }
}
