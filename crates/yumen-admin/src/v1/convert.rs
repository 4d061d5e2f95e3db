//! Conversion of one object between JSON and YAML, for editors: the node's own reader and writer decide.

use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use serde::Deserialize;
use serde_json::json;
use yumen_config::document::TextFault;
use yumen_config::object_text;

use super::V1State;
use super::arguments::{ArgumentNames, StrictQuery};
use crate::refusal::ApiRefusal;
use crate::reply;
use crate::whole_body::WholeBody;

/// Aliases of YAML multiply the size of a text in memory.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// The form of the response.
#[derive(Debug, Deserialize)]
struct ConvertQuery {
    to: TextForm,
}

impl ArgumentNames for ConvertQuery {
    const NAMES: &'static [&'static str] = &["to"];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TextForm {
    Json,
    Yaml,
}

pub(super) fn handler() -> MethodRouter<V1State> {
    post(convert).layer(DefaultBodyLimit::max(TEXT_BYTES_MAX))
}

/// `POST /yumen/v1/convert?to=json|yaml`: the body is an object in either form. Comments are lost.
async fn convert(
    StrictQuery(ConvertQuery { to }): StrictQuery<ConvertQuery>,
    WholeBody(body): WholeBody,
) -> Result<Response, ApiRefusal> {
    // Parsing many aliases would block a thread of the runtime.
    let converted = tokio::task::spawn_blocking(move || converted(&body, to)).await;
    let text = converted
        .map_err(|error| ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))??;
    Ok(reply::json(StatusCode::OK, &json!({ "text": text })))
}

/// The object of a body in the other form.
fn converted(body: &[u8], to: TextForm) -> Result<String, ApiRefusal> {
    let text = std::str::from_utf8(body).map_err(|error| ApiRefusal::invalid(format!("no text: {error}")))?;
    let object = object_text::read(text).map_err(refusal)?;
    match to {
        TextForm::Yaml => object_text::to_yaml(object).map_err(ApiRefusal::invalid),
        TextForm::Json => {
            let text = serde_json::to_string_pretty(&object);
            text.map(|text| text + "\n").map_err(|error| ApiRefusal::invalid(error.to_string()))
        }
    }
}

fn refusal(fault: TextFault) -> ApiRefusal {
    let TextFault { message, at, hint } = fault;
    let (line, column) = at.map(|at| (at.line, at.column)).unzip();
    let body = json!({ "error_msg": message, "hint": hint, "line": line, "column": column });
    ApiRefusal::of(StatusCode::BAD_REQUEST, body)
}

#[cfg(test)]
mod tests {
    use crate::testing::call;
    use crate::v1;

    #[tokio::test]
    async fn text_is_converted_and_a_fault_has_its_line() {
        let router: axum::Router = v1::router(v1::tests::state(crate::testing::state()));
        for (to, body, status, part) in [
            ("yaml", r#"{"uri": "/a", "vars": ["on"]}"#, 200, r#"{"text":"uri: /a\nvars:\n- 'on'\n"}"#),
            ("json", "uri: /a # comment\n", 200, r#"{"text":"{\n  \"uri\": \"/a\"\n}\n"}"#),
            ("json", "uri: /a\n\tb: 1\n", 400, r#""line":2"#),
            ("json", "uri: /a\nuri: /b\n", 400, "more than once"),
            ("json", "a: {b: .inf}\n", 400, r#"\"a.b\": the number is not finite"#),
            ("json", "a: [.nan]\n", 400, r#"\"a[0]\": the number is not finite"#),
            ("yaml", r#"{"a": 18446744073709551616}"#, 400, r#"\"a\": the number is beyond 64 bits"#),
            ("json", "a: 18446744073709551616\n", 400, "would be rounded"),
            ("yaml", r#"{"a": 18446744073709551615}"#, 200, "a: 18446744073709551615"),
            ("xml", "{}", 400, "xml"),
        ] {
            let path = format!("/yumen/v1/convert?to={to}");
            let reply = call(&router, "POST", &path, &[], body).await;
            assert_eq!(reply.status.as_u16(), status, "{body}: {}", reply.text);
            assert!(reply.text.contains(part), "{body}: {}", reply.text);
        }
    }
}
