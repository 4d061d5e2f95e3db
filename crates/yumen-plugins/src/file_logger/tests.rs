use serde_json::{Value, json};

use crate::testing::PluginBench;

fn lines(settings: Value, requests: &[&str]) -> Vec<String> {
    let bench = PluginBench::new();
    let mut written = json!({"path": "/tmp/access.log", "log_format": {"uri": "$uri"}});
    written.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let plugin = bench.plugin("file-logger", written);
    requests.iter().for_each(|request| drop(bench.run(&plugin, request)));
    bench.sink_bodies()
}

#[test]
fn each_entry_is_a_line() {
    let line = |uri: &str| format!("{{\"uri\":\"{uri}\",\"service_id\":\"s1\",\"route_id\":\"1\"}}\n");
    let written = lines(json!({}), &["GET /a HTTP/1.1", "GET /b HTTP/1.1"]);
    assert_eq!(written, [line("/a") + &line("/b")]);
}

#[test]
fn one_condition_of_match_suffices() {
    let settings = json!({"match": [[["arg_a", "==", "1"]], [["arg_b", "==", "2"], ["uri", "==", "/x"]]]});
    let count = |request| lines(settings.clone(), &[request]).len();
    assert_eq!(count("GET /?a=1 HTTP/1.1"), 1);
    assert_eq!(count("GET /x?b=2 HTTP/1.1"), 1);
    assert_eq!(count("GET /y?b=2 HTTP/1.1"), 0);
}

#[test]
fn the_path_may_be_in_the_metadata() {
    let mut bench = PluginBench::new();
    struct NoObjects;
    impl yumen_plugin::ObjectLookup for NoObjects {
        fn proto(&self, _: &str) -> Option<std::sync::Arc<yumen_plugin::proto::ProtoDescriptors>> {
            None
        }

        fn upstream(&self, _: &str) -> Option<yumen_plugin::UpstreamSlot> {
            None
        }

        fn inline_upstream(
            &self,
            _: &str,
            _: yumen_config::resource::UpstreamSpec,
        ) -> Result<yumen_plugin::UpstreamSlot, yumen_config::schema::InvalidSettings> {
            Ok(yumen_plugin::UpstreamSlot::known(0))
        }
    }
    bench.objects = Some(Box::new(NoObjects));
    let error = bench.build("file-logger", json!({})).err().expect("refused");
    assert_eq!(error.message, "property \"path\" is not set in either the plugin conf or the metadata");
    bench.metadata = Some(json!({"path": "/tmp/b.log"}));
    assert!(bench.build("file-logger", json!({})).is_ok());
}
