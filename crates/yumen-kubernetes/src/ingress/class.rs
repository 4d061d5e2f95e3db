//! Which Ingresses are served: by `ingressClassName`, else by the annotation, else by the default class.

use std::sync::Arc;

use crate::engine::TrackedView;
use crate::model::{ClusterKind, IngressClassObject, IngressObject, ObjectKey};
use crate::settings::ADOPTED_CONTROLLER;

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// `--ingress-class` of ingress-nginx.
const CLASS_NAME: &str = "nginx";

/// The class by which an Ingress is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServedClass {
    /// A class of this controller.
    Own,
    /// A class of ingress-nginx.
    Adopted,
}

/// The class of an Ingress; `None` if another controller serves it.
pub(super) fn served_class(view: &TrackedView<'_>, ingress: &IngressObject) -> Option<ServedClass> {
    if !is_watched(view, &ingress.meta.namespace) {
        return None;
    }
    let is_written = |name: &&Arc<str>| !name.is_empty();
    if let Some(name) = ingress.spec.ingress_class_name.as_ref().filter(is_written) {
        return class_of_name(view, name);
    }
    let flags = &view.settings().ingress.controller.flags;
    if let Some(name) = ingress.meta.annotations.get(CLASS_ANNOTATION).filter(is_written) {
        // The annotation names no object: the name alone decides.
        let is_named = **name == *flags.ingress_class.as_deref().unwrap_or(CLASS_NAME);
        return if is_named { Some(ServedClass::Adopted) } else { class_of_name(view, name) };
    }
    if flags.is_set("watch-ingress-without-class") {
        return Some(ServedClass::Adopted);
    }
    let classes = view.list_all::<IngressClassObject>(ClusterKind::IngressClass).into_iter();
    let mut defaults = classes
        .filter(|class| class.meta.annotations.get(IS_DEFAULT).is_some_and(|value| &**value == "true"));
    defaults.find_map(|class| class_of(view, class))
}

/// Whether the flags admit Ingresses of a namespace: `--watch-namespace`, `--watch-namespace-selector`.
fn is_watched(view: &TrackedView<'_>, namespace: &Arc<str>) -> bool {
    let flags = &view.settings().ingress.controller.flags;
    let of_name = flags.watch_namespace.as_ref().is_none_or(|only| only.is_empty() || only == namespace);
    let Some(selector) = flags.watch_selector.as_ref().filter(|selector| of_name && !selector.is_empty())
    else {
        return of_name;
    };
    let labels = view.namespace_labels(namespace);
    selector.split(',').all(|requirement| {
        let (name, value) = requirement.split_once('=').unwrap_or((requirement, ""));
        let found = labels.and_then(|labels| labels.get(name.trim()));
        found.is_some_and(|found| {
            !requirement.contains('=') || **found == *value.trim_start_matches('=').trim()
        })
    })
}

fn class_of_name(view: &TrackedView<'_>, name: &str) -> Option<ServedClass> {
    let key = ObjectKey::new(ClusterKind::IngressClass, "", name);
    let of_object = view.get::<IngressClassObject>(&key).and_then(|class| class_of(view, class));
    let flags = &view.settings().ingress.controller.flags;
    let by_name =
        flags.is_set("ingress-class-by-name") && name == flags.ingress_class.as_deref().unwrap_or(CLASS_NAME);
    of_object.or(by_name.then_some(ServedClass::Adopted))
}

fn class_of(view: &TrackedView<'_>, class: &IngressClassObject) -> Option<ServedClass> {
    let controller = &class.spec.controller;
    let settings = view.settings();
    let adopted = settings.ingress.controller.flags.controller_class.as_deref();
    if *controller == settings.controller_name {
        return Some(ServedClass::Own);
    }
    (**controller == *adopted.unwrap_or(ADOPTED_CONTROLLER)).then_some(ServedClass::Adopted)
}
