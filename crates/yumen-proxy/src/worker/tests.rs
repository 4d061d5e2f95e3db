//! The merged chains of a worker across changes of the configuration.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;
use yumen_config::{Kind, Resource};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{PluginChain, PluginRegistry};
use yumen_snapshot::compile::ConfigChange;
use yumen_snapshot::{Compiler, CompilerEnv, Publisher, UpstreamDefaults};

use super::{Worker, WorkerParts};
use crate::observe::counters::WorkerCounters;
use crate::runtime::worker_duty::WorkerDuty;
use crate::settings::WorkerSettings;

pub(crate) fn compiler() -> Compiler {
    let env = CompilerEnv {
        sinks: None,
        node: NodeFacts::default(),
        defaults: UpstreamDefaults::default(),
        path_parameters: true,
        workers: 1,
        closes_broken: false,
        missing: Default::default(),
        fetched: Arc::default(),
        variables: Arc::new(|_| None),
        load_certificate: Arc::new(
            |_: &str,
             _: &str|
             -> Result<yumen_snapshot::compile::Loaded, yumen_snapshot::compile::KeyPairError> {
                Err(yumen_snapshot::compile::KeyPairError::Certificate("there is no TLS here".into()))
            },
        ),
    };
    Compiler::new(Arc::new(PluginRegistry::new(yumen_plugins::BUILTIN)), Arc::default(), env)
}

pub(crate) fn put(kind: Kind, id: &str, value: &Value) -> ConfigChange {
    ConfigChange::Put(Resource { kind, id: id.into(), json: value.to_string().into() })
}

/// Creates a worker that serves snapshots of `publisher`.
pub(crate) fn worker(publisher: Arc<Publisher>) -> Rc<Worker> {
    worker_with(WorkerSettings::default(), publisher)
}

/// The same with settings.
pub(crate) fn worker_with(settings: WorkerSettings, publisher: Arc<Publisher>) -> Rc<Worker> {
    Worker::new(WorkerParts {
        id: 0,
        settings: Arc::new(settings),
        publisher,
        counters: Arc::<WorkerCounters>::default(),
        applied: Arc::default(),
        log: None,
        otlp_log: None,
        duty: watch::channel(WorkerDuty::Serve).1,
        seed: 1,
    })
}

/// The merged chain of the only route and the only consumer.
fn merged(worker: &Worker) -> Rc<PluginChain> {
    let pinned = worker.pinned();
    let routes = pinned.router.routes();
    pinned.merged(routes["a"], pinned.consumers.named("ada").expect("it was written"))
}

#[test]
fn chains_of_consumers_are_merged_anew_only_where_something_else_than_endpoints_changes() {
    let (mut compiler, publisher) = (compiler(), Arc::new(Publisher::default()));
    let upstream =
        |port: u16| put(Kind::Upstreams, "u", &json!({ "nodes": { format!("127.0.0.1:{port}"): 1 } }));
    let consumer = |text: &str| {
        let plugins = json!({ "response-rewrite": { "body": text } });
        put(Kind::Consumers, "ada", &json!({ "username": "ada", "plugins": plugins }))
    };
    let route = put(Kind::Routes, "a", &json!({ "uri": "/a", "upstream_id": "u" }));
    let mut publish = |changes| drop(publisher.publish(compiler.apply(changes, 1).snapshot));
    publish(vec![upstream(1), consumer("one"), route]);
    let worker = worker(publisher.clone());
    let mut before = merged(&worker);
    for (change, is_new) in [(upstream(2), false), (consumer("two"), true), (upstream(3), false)] {
        let what = format!("{change:?}");
        publish(vec![change]);
        let after = merged(&worker);
        assert_eq!(!Rc::ptr_eq(&before, &after), is_new, "{what}");
        before = after;
    }
}
