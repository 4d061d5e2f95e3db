use std::cell::RefCell;
use std::sync::Arc;

use serde_json::{Value, json};
use yumen_plugin::proto::ProtoDescriptors;

use super::*;

#[test]
fn a_url_has_a_host_a_port_and_a_target() {
    fn check(text: &str, expected: Option<(bool, &str, u16, &str, &str)>) {
        let parsed = ServiceUrl::parse("uri", text).ok();
        let parts = parsed.as_ref().map(|url| {
            (url.is_https, url.host.as_str(), url.port, url.authority.as_str(), url.target.as_str())
        });
        assert_eq!(parts, expected, "{text}");
    }
    check("http://a.test:81/x?y=z", Some((false, "a.test", 81, "a.test:81", "/x?y=z")));
    check("HTTPS://a.test", Some((true, "a.test", 443, "a.test", "/")));
    check("http://[::1]:80?x=y", Some((false, "[::1]", 80, "[::1]:80", "/?x=y")));
    check("http://[::1]/", Some((false, "[::1]", 80, "[::1]", "/")));
    for refused in
        ["ftp://a/", "a.test/x", "http://", "http://a:0/", "http://a:+1/", "http://a/#b", "http://a/b c"]
    {
        check(refused, None);
    }
    let refused = ServiceUrl::parse("token_endpoint", "https://user:secret@a.test/").unwrap_err();
    assert_eq!(refused.path, "token_endpoint");
    assert!(!refused.message.contains("secret"), "{}", refused.message);
}

/// Records inline upstreams.
#[derive(Default)]
struct RecordedUpstreams(RefCell<Vec<(String, Value)>>);

impl ObjectLookup for RecordedUpstreams {
    fn proto(&self, _: &str) -> Option<Arc<ProtoDescriptors>> {
        None
    }

    fn upstream(&self, _: &str) -> Option<UpstreamSlot> {
        None
    }

    fn inline_upstream(&self, path: &str, written: UpstreamSpec) -> Result<UpstreamSlot, InvalidSettings> {
        let written = serde_json::to_value(written).unwrap();
        self.0.borrow_mut().push((path.to_owned(), written));
        Ok(UpstreamSlot::known(3))
    }
}

#[test]
fn connection_settings_become_an_inline_upstream() {
    let objects = RecordedUpstreams::default();
    let how = ServiceConnection::new("opa", 3000, false).keepalive(true, 1500, 7);
    let target =
        ServiceTarget::of_setting("host", "https://a.test/v1?secret=x", &how, Some(&objects)).unwrap();
    let (path, written) = objects.0.borrow()[0].clone();
    assert_eq!(
        (path.as_str(), &written["scheme"], &written["tls"]["verify"]),
        ("host", &json!("https"), &json!(false))
    );
    assert_eq!(
        (&written["keepalive_pool"]["size"], &written["keepalive_pool"]["idle_timeout"]),
        (&json!(7), &json!(1.5))
    );
    assert_eq!(target.describe(), "https://a.test/v1");
    let call = target.request(Method::Post);
    assert_eq!(
        (call.target.as_str(), call.authority.as_str(), call.plugin),
        ("/v1?secret=x", "a.test", "opa")
    );
    assert!(call.keeps && call.timeout_ms == 3000);
    let closing =
        ServiceTarget::of_setting("host", "http://a.test", &how.keepalive(false, 1, 1), None).unwrap();
    assert!(!closing.request(Method::Get).keeps);
}

#[test]
fn unusable_trust_anchors_are_refused_at_the_url() {
    let how =
        ServiceConnection { ca_pem: Some("short".to_owned()), ..ServiceConnection::new("opa", 1, true) };
    let refused = ServiceTarget::of_setting("host", "https://a.test", &how, None).unwrap_err();
    assert_eq!(refused.path, "host");
}
