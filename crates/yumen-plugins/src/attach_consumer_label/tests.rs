use serde_json::json;

use crate::testing::PluginBench;

#[test]
fn labels_replace_fields_of_the_client() {
    for (consumer, expected) in [("jack", vec!["X-Team: web"]), ("", vec![])] {
        let mut bench = PluginBench::new();
        bench.add_labelled_consumer("jack", &[("team", "web")]);
        let settings = json!({"headers": {"X-Team": "$team", "X-Role": "$role"}});
        let plugins = [bench.plugin("attach-consumer-label", settings)];
        let request = "GET / HTTP/1.1\nX-Team: forged\nx_team: forged\nX-Role: admin";
        let mut ex = bench.exchange(request);
        if let Some(consumer) = bench.consumers.named(consumer) {
            ex.identify(consumer, None);
        }
        let answer = bench.admit(&plugins, &mut ex, request);
        let reply = bench.finish(&plugins, ex, answer);
        let upstream = reply.upstream.unwrap();
        let sent: Vec<&str> =
            upstream.iter().map(String::as_str).filter(|line| line.to_lowercase().starts_with('x')).collect();
        let own: Vec<&str> =
            sent.into_iter().filter(|line| !line.to_lowercase().starts_with("x-consumer")).collect();
        assert_eq!(own, expected, "{consumer:?}");
    }
}

#[test]
fn settings_that_cannot_be_followed_are_refused() {
    let bench = PluginBench::new();
    for (settings, message) in [
        (json!({"headers": {"X Y": "$team"}}), "is no field name"),
        (json!({"headers": {"X-Y": "$"}}), "the name of a label"),
    ] {
        let refusal = bench
            .build("attach-consumer-label", settings.clone())
            .err()
            .map(|error| format!("{error:?}"))
            .unwrap_or_default();
        assert!(refusal.contains(message), "{settings}: {refusal}");
    }
}
