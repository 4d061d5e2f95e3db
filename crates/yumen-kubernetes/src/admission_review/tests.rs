use serde_json::{Value, json};

use super::*;

fn request(operation: &str, kind: &str, object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5",
            "kind": { "group": "networking.k8s.io", "version": "v1", "kind": kind },
            "operation": operation,
            "namespace": "shop",
            "object": object,
        },
    })
}

fn ingress() -> Value {
    json!({ "metadata": { "name": "cart", "namespace": "shop" }, "spec": { "ingressClassName": "yumen" } })
}

fn subject(review: &Value) -> String {
    match read_review(review.to_string().as_bytes()) {
        Ok(AdmissionQuestion { subject: ReviewSubject::Exempt, .. }) => "exempt".to_owned(),
        Ok(AdmissionQuestion { subject: ReviewSubject::Undecodable(reason), .. }) => reason,
        Ok(AdmissionQuestion { subject: ReviewSubject::Object(reviewed), .. }) => {
            let age = if reviewed.is_new { "new" } else { "changed" };
            format!("{age} {}", reviewed.object.key())
        }
        Err(defect) => format!("400 {defect}"),
    }
}

#[test]
fn bodies_that_are_no_review_are_refused_with_the_reason() {
    let check = |body: &[u8], expected: &str| {
        let error = read_review(body).expect_err("no review").to_string();
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    };
    check(b"", "the body is no AdmissionReview: EOF");
    check(b"{", "the body is no AdmissionReview");
    check(b"[1]", "the body is no AdmissionReview");
    check(b"\xff\xfe", "the body is no AdmissionReview");
    check(b"{}", "expected kind \"AdmissionReview\" of \"admission.k8s.io/v1\", found kind \"\" of \"\"");
    check(br#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#, "v1beta1");
    check(br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, "has no request");
    let nested = "[".repeat(100_000);
    check(nested.as_bytes(), "the body is no AdmissionReview");
    let bare = request("CREATE", "Ingress", &json!("text"));
    check(bare.to_string().as_bytes(), "request.object has no metadata");
}

#[test]
fn only_changes_of_configuration_are_reviewed() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut review = request("UPDATE", "Ingress", &ingress());
        change(&mut review["request"]);
        review
    };
    let check = |review: &Value, expected: &str| assert_eq!(subject(review), expected);
    check(&request("CREATE", "Ingress", &ingress()), "new Ingress/shop/cart");
    check(&request("UPDATE", "Ingress", &ingress()), "changed Ingress/shop/cart");
    check(&request("DELETE", "Ingress", &Value::Null), "exempt");
    check(&request("CONNECT", "Ingress", &ingress()), "exempt");
    check(&request("CREATE", "NetworkPolicy", &ingress()), "exempt");
    check(&with(&|request| request["subResource"] = "status".into()), "exempt");
    check(&with(&|request| request["oldObject"] = ingress()), "exempt");
    check(&with(&|request| request["dryRun"] = true.into()), "changed Ingress/shop/cart");
    let deleting = |request: &mut Value| {
        request["object"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    };
    check(&with(&deleting), "exempt");
    let annotated = |request: &mut Value| {
        request["oldObject"] = ingress();
        request["object"]["metadata"]["annotations"] = json!({ "a": "b" });
    };
    check(&with(&annotated), "changed Ingress/shop/cart");
    let labelled = |request: &mut Value| {
        request["oldObject"] = ingress();
        request["object"]["metadata"]["labels"] = json!({ "a": "b" });
    };
    check(&with(&labelled), "exempt");
    let generated = json!({ "metadata": { "generateName": "cart-" }, "spec": {} });
    check(&request("CREATE", "Ingress", &generated), "new Ingress/shop/cart-");
    let odd = json!({ "metadata": { "name": "cart" }, "spec": { "rules": 7 } });
    assert!(
        subject(&request("CREATE", "Ingress", &odd)).starts_with("the Ingress does not decode: invalid type")
    );
}

#[test]
fn answers_repeat_the_id_and_bound_their_texts() {
    let question = AdmissionQuestion { uid: "705ab4f5".into(), subject: ReviewSubject::Exempt };
    let allowed = AdmissionFindings::default().answer(&question);
    let response = json!({ "uid": "705ab4f5", "allowed": true });
    let expected =
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
    assert_eq!(allowed, expected);
    let long = "\u{e4}".repeat(10_000);
    let findings =
        AdmissionFindings { refusals: vec!["first".into(), long.clone()], warnings: vec![long; 40] };
    let refused = findings.answer(&question);
    let response = &refused["response"];
    assert_eq!(response["allowed"], false);
    let message = response["status"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("first; ") && message.len() <= MESSAGE_BYTES_MAX, "{}", message.len());
    let warnings = response["warnings"].as_array().expect("warnings");
    assert_eq!(warnings.len(), WARNINGS_MAX);
    assert!(warnings.iter().all(|text| text.as_str().is_some_and(|text| text.len() <= WARNING_BYTES_MAX)));
}
