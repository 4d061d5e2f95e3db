//! The objects that translated routes come from.

use std::borrow::Cow;

use serde::Deserialize;
use yumen_config::Kind;

use super::ExplainContext;

/// The label `origin` of a translated object; `None` for an object of a user, whose labels mean anything.
pub(super) fn origin(kind: Kind, id: &str, context: &ExplainContext<'_>) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct LabelledObject<'t> {
        #[serde(borrow)]
        labels: OriginLabel<'t>,
    }
    #[derive(Deserialize)]
    struct OriginLabel<'t> {
        #[serde(borrow)]
        origin: Cow<'t, str>,
    }
    // Only ids of translated objects have this character.
    if !id.contains('!') {
        return None;
    }
    let text = context.text?(kind, id)?;
    let object: LabelledObject<'_> = serde_json::from_str(&text).ok()?;
    Some(object.labels.origin.into())
}
