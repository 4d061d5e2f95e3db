//! Ids of items that have none of their own in a document: their place in it.
//!
//! `routes#2` is the second of the routes, as APISIX has it. Nobody can write such an id, since `#` is not allowed in one.
//! Nothing can be told from it but the place: an item that comes before it makes it another's.

use std::borrow::Cow;

use super::{IdRule, Kind};

/// Whether the place of an item can stand in for its id. Other ids name the subject of the resource.
pub(crate) fn is_named_by_place(kind: Kind) -> bool {
    kind.descriptor().id == IdRule::Name
}

/// The id of the item at this place, counted from 1.
pub(crate) fn id_of_place(kind: Kind, place: usize) -> String {
    format!("{}#{place}", kind.name())
}

/// The place that an id stands for.
pub(crate) fn place_of(kind: Kind, id: &str) -> Option<&str> {
    is_named_by_place(kind).then(|| id.strip_prefix(kind.name())?.strip_prefix('#')).flatten()
}

/// What ids are ordered by where nothing else decides: as texts, but the tenth place comes behind the ninth.
pub fn natural_order_key(id: &str) -> Cow<'_, str> {
    match id.split_once('#') {
        // Others have such names at will (etcd), and two of them shall not be the same.
        Some((list, place)) if !place.starts_with('0') && place.bytes().all(|byte| byte.is_ascii_digit()) => {
            Cow::Owned(format!("{list}#{place:0>20}"))
        }
        _ => Cow::Borrowed(id),
    }
}

/// Whether an id is but a place: what has it now may be another resource than what had it before.
pub fn is_place(kind: Kind, id: &str) -> bool {
    place_of(kind, id).is_some()
}
