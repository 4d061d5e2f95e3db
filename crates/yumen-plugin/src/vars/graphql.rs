//! The operation of a GraphQL request: kind, name and root fields, within limits on the cost of a document.

use std::borrow::Cow;

use apollo_parser::Parser;
use apollo_parser::cst::{Definition, OperationDefinition, Selection};
use yumen_http::{KnownField, Method};

use super::post::{form_field, is_json, media_type};
use super::{VarValue, body_index};
use crate::{BacktrackLimitExceeded, Exchange};

/// Deepest nesting of selections.
const DEPTH_MAX: usize = 64;
/// Most tokens of a document.
const TOKENS_MAX: usize = 10_000;

/// The operation of a GraphQL request.
#[derive(Debug, Clone)]
pub(crate) struct GraphqlOperation {
    /// `query`, `mutation` or `subscription`.
    pub(super) kind: &'static str,
    /// Name; empty for an anonymous operation.
    pub(super) name: String,
    pub(super) root_fields: Vec<String>,
}

/// The first operation of the document; `None` if there is none or it is malformed. A document beyond the
/// limits leaves the exchange undecided.
pub(super) fn operation<'a>(ex: &'a Exchange<'_>) -> Option<Cow<'a, GraphqlOperation>> {
    // A GET request carries the document in its query (GraphQL over HTTP §5).
    if ex.request.method() == Method::Get {
        let document = form_field(ex.request.query()?, b"query")?;
        return ex.decided(parse(std::str::from_utf8(&document).ok()?)).map(Cow::Owned);
    }
    let body = ex.body.buffered.as_ref()?;
    let found = body.operation.get_or_init(|| ex.decided(parse(&document_in_body(ex)?)));
    found.as_ref().map(Cow::Borrowed)
}

fn parse(document: &str) -> Result<Option<GraphqlOperation>, BacktrackLimitExceeded> {
    let tree = Parser::new(document).recursion_limit(DEPTH_MAX).token_limit(TOKENS_MAX).parse();
    // A document beyond the limits is undecided, not invalid.
    if tree.errors().any(|error| error.is_limit()) {
        return Err(BacktrackLimitExceeded);
    }
    if tree.errors().len() > 0 {
        return Ok(None);
    }
    Ok(tree.document().definitions().find_map(|definition| match definition {
        Definition::OperationDefinition(operation) => Some(describe(&operation)),
        _ => None,
    }))
}

/// Whether the type of the body may carry a document and the method is not GET.
pub(super) fn is_in_body(ex: &Exchange<'_>) -> bool {
    ex.request.method() != Method::Get
        && (ex.has_ambiguous_content_type()
            || ex.request.fields.known(KnownField::ContentType).map(media_type).is_some_and(|media_type| {
                media_type.eq_ignore_ascii_case(b"application/graphql") || is_json(media_type)
            }))
}

fn document_in_body(ex: &Exchange<'_>) -> Option<String> {
    if ex.has_ambiguous_content_type() && ex.body.buffered.as_ref().is_some_and(|body| !body.is_empty()) {
        return ex.undecided_by_body();
    }
    let media_type = media_type(ex.request.fields.known(KnownField::ContentType)?);
    if media_type.eq_ignore_ascii_case(b"application/graphql") {
        // The parser needs the document as text, and JSON bodies have the same bound.
        let body = ex.body.buffered.as_deref()?;
        if body.len() > body_index::INDEXED_BYTES_MAX {
            return ex.decided(Err(BacktrackLimitExceeded));
        }
        return String::from_utf8(body.to_vec()).ok().or_else(|| ex.undecided_by_body());
    }
    let VarValue::Text(document) = is_json(media_type).then(|| body_index::argument(ex, "query"))?? else {
        return None;
    };
    String::from_utf8(document.into_owned()).ok()
}

fn describe(operation: &OperationDefinition) -> GraphqlOperation {
    let kind = match operation.operation_type() {
        Some(kind) if kind.mutation_token().is_some() => "mutation",
        Some(kind) if kind.subscription_token().is_some() => "subscription",
        _ => "query",
    };
    let name = operation.name().map(|name| name.text().to_string()).unwrap_or_default();
    let selections = operation.selection_set().into_iter().flat_map(|set| set.selections());
    let root_fields = selections.filter_map(|selection| match selection {
        Selection::Field(field) => Some(field.name()?.text().to_string()),
        _ => None,
    });
    GraphqlOperation { kind, name, root_fields: root_fields.collect() }
}
