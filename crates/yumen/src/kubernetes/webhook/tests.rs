use serde_json::json;

use super::certificate_keeper::trusting_patch;
use super::issued_identity::IssuedIdentity;
use super::*;

const NOW_S: u64 = 1_800_000_000;
const DAY_S: u64 = 86_400;

fn names() -> Vec<String> {
    vec!["yumen-admission.yumen.svc".to_owned(), "127.0.0.1".to_owned()]
}

fn issued(former: Option<&IssuedIdentity>, now_s: u64) -> IssuedIdentity {
    IssuedIdentity::issue(&names(), former, now_s).unwrap()
}

#[test]
fn a_certificate_is_renewed_a_month_before_its_end_and_for_further_names() {
    let identity = issued(None, NOW_S);
    assert!(!identity.is_due(&names(), NOW_S));
    assert!(!identity.is_due(&names(), NOW_S + 58 * DAY_S));
    assert!(identity.is_due(&names(), NOW_S + 61 * DAY_S));
    assert!(identity.is_due(&["other.svc".to_owned()], NOW_S));
    let broken = IssuedIdentity { certificate: "PEM".to_owned(), ..identity };
    assert!(broken.is_due(&names(), NOW_S));
}

#[test]
fn authorities_of_former_certificates_are_trusted_until_they_end() {
    let count = |identity: &IssuedIdentity| identity.authorities.matches("BEGIN CERTIFICATE").count();
    let first = issued(None, NOW_S);
    let second = issued(Some(&first), NOW_S + 61 * DAY_S);
    assert_eq!(count(&second), 2);
    assert!(second.authorities.ends_with(&first.authorities));
    // The authority of the first certificate ended.
    let third = issued(Some(&second), NOW_S + 122 * DAY_S);
    assert_eq!(count(&third), 2);
    assert!(!third.authorities.contains(&first.authorities));
    let mut last = third;
    for _ in 0..5 {
        last = issued(Some(&last), NOW_S + 122 * DAY_S);
    }
    assert_eq!(count(&last), 3, "bounded");
}

#[test]
fn a_secret_holds_the_identity() {
    let identity = issued(None, NOW_S);
    let secret = identity.secret("yumen-admission", "yumen", Some("7"));
    assert_eq!(secret["metadata"]["resourceVersion"], "7");
    assert_eq!(IssuedIdentity::of_secret(secret.to_string().as_bytes()), Some(identity));
    assert_eq!(IssuedIdentity::of_secret(br#"{"data":{"tls.crt":"AAAA"}}"#), None);
    assert_eq!(IssuedIdentity::of_secret(b"no JSON"), None);
}

#[test]
fn the_bundle_is_written_where_it_differs() {
    let configuration = |bundle: &str| {
        json!({ "webhooks": [
            { "name": "a", "clientConfig": { "caBundle": "new", "service": { "name": "s" } } },
            { "name": "b", "clientConfig": { "caBundle": bundle } },
        ] })
    };
    let patch = |bundle: &str| trusting_patch(configuration(bundle).to_string().as_bytes(), "yumen", "new");
    assert_eq!(patch("new"), None);
    let expected = json!([
        { "name": "a", "clientConfig": { "caBundle": "new" } }, { "name": "b", "clientConfig": { "caBundle": "new" } },
    ]);
    assert_eq!(patch("old").map(|patch| patch["webhooks"].clone()), Some(expected));
    assert_eq!(trusting_patch(b"{}", "yumen", "new"), None);
}

#[test]
fn flags_of_ingress_nginx_serve_the_webhook() {
    let flags = |listen: Option<&str>| WebhookFlags {
        listen: listen.map(Into::into),
        certificate: Some("/tls/cert".into()),
        key: Some("/tls/key".into()),
    };
    let settings = effective_settings(&WebhookConfig::default(), &flags(Some(":8443")));
    assert_eq!((settings.enabled, settings.listen.as_str()), (true, ":8443"));
    assert_eq!((settings.certificate.as_str(), settings.key.as_str()), ("/tls/cert", "/tls/key"));
    assert!(!effective_settings(&WebhookConfig::default(), &flags(None)).enabled);
}

#[tokio::test]
async fn reviews_without_a_controller_are_unavailable_and_bodies_that_are_none_malformed() {
    let (sender, mut reviews) = mpsc::channel(1);
    let body = |name: &str| {
        let object = json!({ "metadata": { "name": name, "namespace": "shop" }, "spec": {} });
        let kind = json!({ "group": "networking.k8s.io", "version": "v1", "kind": "Ingress" });
        let request = json!({ "uid": name, "kind": kind, "operation": "CREATE", "object": object });
        let review =
            json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
        Bytes::from(review.to_string())
    };
    assert!(matches!(answer(&Bytes::from_static(b"{}"), &sender).await, WebhookAnswer::Malformed(_)));
    let unanswered = async { drop(reviews.recv().await) };
    let (answered, ()) = tokio::join!(async { answer(&body("a"), &sender).await }, unanswered);
    let WebhookAnswer::Unavailable(reason) = answered else { panic!("{answered:?}") };
    assert!(reason.contains("not known yet"), "{reason}");
    let judging = async {
        let pending = reviews.recv().await.unwrap();
        assert_eq!(pending.reviewed.object.key().to_string(), "Ingress/shop/b");
        pending.answer.send(AdmissionFindings::refused("taken")).unwrap();
    };
    let (answered, ()) = tokio::join!(async { answer(&body("b"), &sender).await }, judging);
    let WebhookAnswer::Review(review) = answered else { panic!("{answered:?}") };
    assert_eq!(review["response"]["status"]["message"], "taken");
    assert_eq!(review["response"]["uid"], "b");
    // A full queue refuses at once.
    let (waiting, _one) = (sender.clone(), sender.reserve().await.unwrap());
    let WebhookAnswer::Unavailable(reason) = answer(&body("c"), &waiting).await else { panic!("answered") };
    assert!(reason.contains("too many"), "{reason}");
}
