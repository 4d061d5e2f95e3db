//! Stand-ins for Consul and Nacos that respond as documented, including blocking queries.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::upstream::{Request, Upstream, respond};

/// The state of a registry, and its requests.
#[derive(Default)]
struct Book {
    index: u64,
    /// Results by service or key prefix.
    answers: BTreeMap<String, Value>,
    /// Status of all responses, if set.
    broken: Option<u16>,
    queries: Vec<String>,
    /// Requests in flight, and their maximum.
    busy: usize,
    busy_max: usize,
}

/// A registry on loopback.
pub(crate) struct Registry {
    book: Arc<(Mutex<Book>, Condvar)>,
    upstream: Upstream,
}

/// An instance as Consul returns it. An empty address means that of its node.
pub(crate) fn consul_instance(address: SocketAddr, weight: u32, meta: Value) -> Value {
    json!({
        "Node": { "Node": "machine", "Address": address.ip().to_string() },
        "Service": {
            "ID": address.to_string(),
            "Service": "web",
            "Address": "",
            "Port": address.port(),
            "Weights": { "Passing": weight, "Warning": 1 },
            "Meta": meta,
        },
        "Checks": [{ "Status": "passing" }],
    })
}

impl Registry {
    /// Consul's `/v1/health/service/NAME` and `/v1/kv/PREFIX`: a query with the current index blocks.
    pub(crate) fn consul() -> Registry {
        Registry::start(|book, request, stream| {
            let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
            let known: u64 = argument(query, "index").and_then(|index| index.parse().ok()).unwrap_or(0);
            let wait: u64 = argument(query, "wait")
                .and_then(|wait| wait.trim_end_matches('s').parse().ok())
                .unwrap_or(60);
            let (lock, changed) = &**book;
            // A blocking query waits until the index passes the one in the query.
            let still = |book: &mut Book| known > 0 && book.index <= known && book.broken.is_none();
            let guard = changed.wait_timeout_while(lock.lock().unwrap(), Duration::from_secs(wait), still);
            let book = guard.unwrap().0;
            let fields = format!("X-Consul-Index: {}\r\n", book.index);
            let name = path.rsplit_once("/v1/health/service/").or(path.rsplit_once("/v1/kv/"));
            let answer = name.and_then(|(_, name)| book.answers.get(name));
            match (book.broken, answer) {
                (Some(status), _) => respond(stream, status, "", b"No cluster leader"),
                (None, Some(answer)) => respond(stream, 200, &fields, answer.to_string().as_bytes()),
                (None, None) if path.starts_with("/v1/kv/") => respond(stream, 404, &fields, b""),
                (None, None) => respond(stream, 200, &fields, b"[]"),
            }
        })
    }

    /// Nacos's `ns/instance/list`, by service name, for clients that logged in as `nacos` with `secret`.
    pub(crate) fn nacos() -> Registry {
        Registry::start(|book, request, stream| {
            let book = book.0.lock().unwrap();
            if request.target.starts_with("/nacos/v1/auth/login") {
                return match request.body == b"username=nacos&password=secret" {
                    true => respond(stream, 200, "", br#"{"accessToken":"let-me-in","tokenTtl":18000}"#),
                    false => respond(stream, 403, "", b"unknown user!"),
                };
            }
            let query = request.target.split_once('?').map_or("", |(_, query)| query);
            if argument(query, "accessToken") != Some("let-me-in") {
                return respond(stream, 403, "", b"token invalid!");
            }
            let hosts = argument(query, "serviceName").and_then(|name| book.answers.get(name));
            let answer = json!({ "hosts": hosts.cloned().unwrap_or_else(|| json!([])) }).to_string();
            match book.broken {
                Some(status) => respond(stream, status, "", b"server is DOWN now"),
                None => respond(stream, 200, "", answer.as_bytes()),
            }
        })
    }

    fn start(
        answer: impl Fn(&Arc<(Mutex<Book>, Condvar)>, &Request, &mut std::net::TcpStream) -> bool
        + Send
        + Sync
        + 'static,
    ) -> Registry {
        let book = Arc::<(Mutex<Book>, Condvar)>::default();
        book.0.lock().unwrap().index = 1;
        let shared = book.clone();
        let upstream = Upstream::start(move |request, stream| {
            {
                let mut book = shared.0.lock().unwrap();
                book.queries.push(request.head.clone());
                book.busy += 1;
                book.busy_max = book.busy_max.max(book.busy);
            }
            let continues = answer(&shared, request, stream);
            shared.0.lock().unwrap().busy -= 1;
            continues
        });
        Registry { book, upstream }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.upstream.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.upstream.address
    }

    /// Sets the result for a service; `None` removes the service.
    pub(crate) fn set_answer(&self, name: &str, answer: Option<Value>) {
        self.change(|book| match answer {
            Some(answer) => drop(book.answers.insert(name.to_owned(), answer)),
            None => drop(book.answers.remove(name)),
        });
    }

    /// Responds with this status to everything; `None` ends that.
    pub(crate) fn breaks(&self, status: Option<u16>) {
        self.change(|book| book.broken = status);
    }

    fn change(&self, change: impl FnOnce(&mut Book)) {
        let mut book = self.book.0.lock().unwrap();
        change(&mut book);
        book.index += 1;
        self.book.1.notify_all();
    }

    /// Most requests in flight at once.
    pub(crate) fn busy_max(&self) -> usize {
        self.book.0.lock().unwrap().busy_max
    }

    /// Heads of all requests so far.
    pub(crate) fn queries(&self) -> Vec<String> {
        self.book.0.lock().unwrap().queries.clone()
    }
}

fn argument<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}
