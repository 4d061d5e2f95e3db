//! What a GraphQL request asks for: kind and name of its operation, and the fields at its root.
//!
//! Knows where a request carries its document; limits what a hostile one can cost.

use apollo_parser::Parser;
use apollo_parser::cst::{Definition, OperationDefinition, Selection};
use serde::Deserialize;
use yumen_http::{Known, Method};

use super::post::{form_field, is_json, media_type};
use crate::Exchange;

/// A document nested deeper has no operation for us.
const DEPTH_MAX: usize = 64;
/// A document with more tokens has no operation for us.
const TOKENS_MAX: usize = 50_000;

pub(super) struct Operation {
    /// `query`, `mutation` or `subscription`.
    pub(super) kind: &'static str,
    /// Empty for an anonymous operation.
    pub(super) name: String,
    pub(super) root_fields: Vec<String>,
}

#[derive(Deserialize)]
struct Envelope {
    query: String,
}

/// The first operation of the request's document; `None` where there is none or it is malformed.
pub(super) fn operation(ex: &Exchange<'_>) -> Option<Operation> {
    let document = document(ex)?;
    let tree = Parser::new(&document).recursion_limit(DEPTH_MAX).token_limit(TOKENS_MAX).parse();
    if tree.errors().len() > 0 {
        return None;
    }
    tree.document().definitions().find_map(|definition| match definition {
        Definition::OperationDefinition(operation) => Some(describe(&operation)),
        _ => None,
    })
}

/// Whether the body is of a type that carries a document, and the request of a method that looks for it there.
pub(super) fn is_in_body(ex: &Exchange<'_>) -> bool {
    ex.request.method() != Method::Get
        && ex.request.fields.known(Known::ContentType).map(media_type).is_some_and(|media_type| {
            media_type.eq_ignore_ascii_case(b"application/graphql") || is_json(media_type)
        })
}

fn document(ex: &Exchange<'_>) -> Option<String> {
    if ex.request.method() == Method::Get {
        return String::from_utf8(form_field(ex.request.query()?, b"query")?).ok();
    }
    let body = ex.body.as_deref()?;
    let media_type = media_type(ex.request.fields.known(Known::ContentType)?);
    if media_type.eq_ignore_ascii_case(b"application/graphql") {
        return String::from_utf8(body.to_vec()).ok();
    }
    is_json(media_type).then(|| serde_json::from_slice::<Envelope>(body).ok())?.map(|body| body.query)
}

fn describe(operation: &OperationDefinition) -> Operation {
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
    Operation { kind, name, root_fields: root_fields.collect() }
}
