use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use yumen_plugin::SecretFetch;

use super::{ROUND, SecretReplies, SecretRound, failed, member_of, member_text};

fn fetch(settings: &str) -> SecretFetch {
    SecretFetch { manager: "vault/1".into(), settings: settings.into(), key: "jack/key".into() }
}

#[test]
fn members_are_texts_numbers_and_flags() {
    for (value, expected) in [
        (json!("a"), Some("a")),
        (json!(80), Some("80")),
        (json!(true), Some("true")),
        (json!(null), None),
        (json!({}), None),
    ] {
        assert_eq!(member_text(&value, "jack/key").ok().as_deref(), expected, "{value}");
    }
    assert_eq!(member_of(r#"{"a":"b"}"#, "a", "x/a").unwrap(), "b");
    for secret in ["{}", "no JSON", "[]"] {
        let failure = member_of(secret, "a", "x/a").unwrap_err();
        assert!(failure.is_absent && !failure.message.contains("no JSON at"), "{failure:?}");
    }
}

#[tokio::test]
async fn references_to_one_path_share_a_request() {
    let (replies, requests) = (SecretReplies::default(), AtomicUsize::new(0));
    let since = Instant::now();
    let ask = |settings: &'static str, path: &'static str| {
        let (requests, replies) = (&requests, &replies);
        async move {
            let request = async {
                requests.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Ok(Arc::new(json!({ "key": path })))
            };
            let round = SecretRound { replies, since };
            round.reply(&fetch(settings), path, request).await.unwrap()["key"].clone()
        }
    };
    let all = tokio::join!(ask("{}", "a"), ask("{}", "a"), ask("{}", "b"), ask("{\"x\":1}", "a"));
    let texts = [all.0, all.1, all.2, all.3].map(|value: Value| value.as_str().unwrap().to_owned());
    assert_eq!(texts, ["a", "a", "b", "a"]);
    assert_eq!(requests.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_failing_manager_is_waited_for_once_in_a_round() {
    let (replies, requests) = (SecretReplies::default(), AtomicUsize::new(0));
    let since = Instant::now();
    for (since, expected) in [(since, 1), (since, 1), (since + ROUND, 2)] {
        let request = async {
            requests.fetch_add(1, Ordering::Relaxed);
            Err(failed("timeout"))
        };
        let round = SecretRound { replies: &replies, since };
        assert_eq!(round.reply(&fetch("{}"), "a", request).await, Err(failed("timeout")));
        assert_eq!(requests.load(Ordering::Relaxed), expected);
    }
}
