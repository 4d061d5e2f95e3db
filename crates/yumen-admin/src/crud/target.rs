//! The target of a request path: kind, parent, id, and a path into the object.

use axum::http::StatusCode;
use percent_encoding::percent_decode_str;
use yumen_config::Kind;
use yumen_config::resource::IdRule;
use yumen_store::ResourceKey;

use crate::refusal::ApiRefusal;

const PREFIX: &str = "/apisix/admin/";

/// The target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CrudTarget {
    pub(crate) kind: Kind,
    /// The consumer of a credential, or the manager of a secret.
    pub(crate) parent: Option<String>,
    /// The id within the kind and the parent.
    pub(crate) id: Option<String>,
    /// The path into the object.
    pub(crate) within: Vec<String>,
}

impl CrudTarget {
    pub(crate) fn of(path: &str) -> Result<CrudTarget, ApiRefusal> {
        let path = path.strip_prefix(PREFIX).unwrap_or_default();
        let mut segments = decoded_segments(path).into_iter();
        let name = segments.next().unwrap_or_default();
        let mut segments: Vec<String> = segments.collect();
        // Other modules serve these names; this verb or depth is not among their routes.
        if matches!(name.as_str(), "schema" | "plugins" | "configs") {
            return Err(ApiRefusal::new(StatusCode::NOT_FOUND, "not found"));
        }
        // `consumers/jack/credentials/1`: the kind is the third segment.
        let nested = segments.get(1).and_then(|segment| Kind::nested(&name, segment));
        if nested.is_some() {
            segments.remove(1);
        }
        // A nested kind has no list of its own at the top.
        let listed = || Kind::from_name(&name).filter(|kind| kind.descriptor().parent.is_none());
        let unsupported =
            |name: &str| ApiRefusal::new(StatusCode::NOT_FOUND, format!("Unsupported resource type: {name}"));
        let unknown = || unsupported(&name);
        // A resource of APISIX, which a PATCH would take for a member of the service.
        let costs = segments.get(1).filter(|segment| *segment == "graphql_cost_decorations");
        if let Some(costs) = costs.filter(|_| name == Kind::Services.name()) {
            return Err(unsupported(costs));
        }
        let kind = nested.or_else(listed).ok_or_else(unknown)?;
        let mut segments = segments.into_iter();
        let has_parent = matches!(kind.descriptor().id, IdRule::WithinParent | IdRule::WithinManager);
        let parent = if has_parent { segments.next() } else { None };
        Ok(CrudTarget { kind, parent, id: segments.next(), within: segments.collect() })
    }

    /// The id in the store, which contains the parent.
    pub(crate) fn stored_id(&self, id: &str) -> String {
        match (&self.parent, self.kind.descriptor().parent) {
            (Some(parent), Some(_)) => format!("{parent}/{}/{id}", self.kind.name()),
            (Some(parent), None) => format!("{parent}/{id}"),
            (None, _) => id.to_owned(),
        }
    }

    /// The key of the object; an error if the path has no id.
    pub(crate) fn key(&self) -> Result<ResourceKey, ApiRefusal> {
        let missing = || ApiRefusal::invalid(format!("missing {} id", self.kind.descriptor().names.label));
        let id = self.id.as_deref().ok_or_else(missing)?;
        Ok(ResourceKey::new(self.kind, self.stored_id(id)))
    }
}

/// The segments of a path. A percent-encoded slash separates segments too, as in APISIX, but for ids of translated
/// objects: `shop%2Fcart%21http%2100` is one id.
fn decoded_segments(path: &str) -> Vec<String> {
    let mut segments = Vec::new();
    for raw in path.split('/') {
        let decoded = percent_decode_str(raw).decode_utf8_lossy();
        match decoded.contains('!') {
            true => segments.push(decoded.into_owned()),
            false => segments.extend(decoded.split('/').map(str::to_owned)),
        }
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}
