//! Ids of document items without an id of their own: their position in the document.
//!
//! `routes#2` is the second route, as in APISIX. Users cannot write such an id, since `#` is not allowed in
//! ids. The id identifies only the position: an item inserted before it shifts the id to another resource.

use std::borrow::Cow;

use super::{IdRule, Kind};

/// Whether the position of an item can stand in for its id. Ids of the other kinds have a meaning of their
/// own.
pub(crate) fn is_named_by_position(kind: Kind) -> bool {
    kind.descriptor().id == IdRule::Name
}

/// The id of the item at this position, counted from 1.
pub(crate) fn id_of_position(kind: Kind, position: usize) -> String {
    format!("{}#{position}", kind.name())
}

/// The position in an id of this form.
pub(crate) fn position_of(kind: Kind, id: &str) -> Option<&str> {
    is_named_by_position(kind).then(|| id.strip_prefix(kind.name())?.strip_prefix('#')).flatten()
}

/// Sort key of ids in the absence of another order: lexical, but the tenth position sorts after the ninth.
pub fn natural_order_key(id: &str) -> Cow<'_, str> {
    match id.split_once('#') {
        // Ids in etcd may have leading zeros; two different ids must not share a key.
        Some((list, position))
            if !position.starts_with('0') && position.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            Cow::Owned(format!("{list}#{position:0>20}"))
        }
        _ => Cow::Borrowed(id),
    }
}

/// Whether an id is a position, which may identify another resource in the next version of the document.
pub fn is_position_id(kind: Kind, id: &str) -> bool {
    position_of(kind, id).is_some()
}
