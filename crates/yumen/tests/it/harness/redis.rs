//! Redis servers as processes: single, in a cluster, or with sentinels. Inspected by `redis-cli`.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::certs::Pair;
use super::port::free_pair;
use super::{Place, Scratch, eventually, run};

/// A server; ends with the test.
pub(crate) struct Redis {
    pub(crate) port: u16,
    place: Place,
    /// Options of `redis-cli` besides the port.
    cli: Vec<String>,
    config: String,
    program: &'static str,
    /// Directory of the server, removed with it.
    _scratch: Scratch,
    child: Child,
}

impl Redis {
    pub(crate) fn start() -> Redis {
        Redis::with("")
    }

    /// With further configuration lines.
    pub(crate) fn with(lines: &str) -> Redis {
        Redis::launch("redis-server", free_pair().port(), lines, &[])
    }

    /// With a password, and a user `shop` with the same password and restricted keys.
    pub(crate) fn with_password(password: &str) -> Redis {
        let cli = ["-a", password, "--no-auth-warning"];
        let lines = format!("requirepass {password}\nuser shop on >{password} ~plugin-limit-count:* +@all");
        Redis::launch("redis-server", free_pair().port(), &lines, &cli)
    }

    /// Over TLS only.
    pub(crate) fn tls(pair: &Pair) -> Redis {
        let scratch = Scratch::new();
        let (cert, key) = (scratch.write("cert.pem", &pair.cert), scratch.write("key.pem", &pair.key));
        let port = free_pair().port();
        let lines = format!(
            "port 0\ntls-port {port}\ntls-cert-file {cert}\ntls-key-file {key}\ntls-ca-cert-file {cert}\n\
             tls-auth-clients no"
        );
        Redis::spawn("redis-server", port, lines, &["--tls", "--insecure"], scratch)
    }

    /// A node for a cluster.
    pub(crate) fn node() -> Redis {
        // The cluster bus of a node uses its port plus 10000.
        Redis::with("cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-node-timeout 1000")
    }

    /// A replica of another server.
    pub(crate) fn replica_of(master: &Redis) -> Redis {
        Redis::with(&format!("replicaof 127.0.0.1 {}", master.port))
    }

    /// A single sentinel for a master.
    pub(crate) fn sentinel(master: &Redis, name: &str) -> Redis {
        let port = master.port;
        let lines = format!(
            "sentinel monitor {name} 127.0.0.1 {port} 1\nsentinel down-after-milliseconds {name} 300\n\
             sentinel failover-timeout {name} 2000"
        );
        Redis::launch("redis-sentinel", free_pair().port(), &lines, &[])
    }

    /// In another place, open to the network.
    pub(crate) fn at(place: &Place) -> Redis {
        let lines = "port 6379\nprotected-mode no".to_owned();
        Redis::spawn_at(place.clone(), "redis-server", 6379, lines, &[], Scratch::new())
    }

    fn launch(program: &'static str, port: u16, lines: &str, cli: &[&str]) -> Redis {
        let lines = format!("port {port}\n{lines}");
        Redis::spawn(program, port, lines, cli, Scratch::new())
    }

    fn spawn(program: &'static str, port: u16, lines: String, cli: &[&str], scratch: Scratch) -> Redis {
        Redis::spawn_at(Place::default(), program, port, lines, cli, scratch)
    }

    fn spawn_at(
        place: Place,
        program: &'static str,
        port: u16,
        lines: String,
        cli: &[&str],
        scratch: Scratch,
    ) -> Redis {
        let host = place.host;
        let dir = scratch.path().display();
        let keeping = if program == "redis-server" { "save \"\"\nappendonly no\n" } else { "" };
        let config = format!("bind {host}\ndir {dir}\n{keeping}{lines}\n");
        let config = scratch.write("redis.conf", config);
        let child = serve(&place, program, &config);
        let cli = cli.iter().map(ToString::to_string).collect();
        let redis = Redis { port, place, cli, config, program, _scratch: scratch, child };
        redis.wait_until_up();
        redis
    }

    fn wait_until_up(&self) {
        eventually("redis listens", 20, || TcpStream::connect(self.address()).is_ok());
        eventually("redis answers", 20, || self.cli(&["PING"]).trim() == "PONG");
    }

    /// The output of a command.
    pub(crate) fn cli(&self, command: &[&str]) -> String {
        let (host, port) = (self.place.host.to_string(), self.port.to_string());
        let mut args: Vec<&str> = vec!["-h", &host, "-p", &port];
        args.extend(self.cli.iter().map(String::as_str));
        args.extend(command);
        run("redis-cli", &args).1
    }

    /// Number of calls of a command by all clients.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let stats = self.cli(&["INFO", "commandstats"]);
        let prefix = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
        line.map_or(0, |rest| rest.split(',').next().expect("a count").parse().expect("a number"))
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Restarts it on the same port, without data.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = serve(&self.place, self.program, &self.config);
        self.wait_until_up();
    }

    /// Stops the process without closing connections, or continues it.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        kill_process(pid, signal).expect("the process is there");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.place.host, self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Creates a cluster: masters first, then the replicas of each.
pub(crate) fn join(nodes: &[Redis], replicas: usize) {
    let addresses: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
    let mut args = vec!["--cluster", "create"];
    args.extend(addresses.iter().map(String::as_str));
    let replicas = replicas.to_string();
    args.extend(["--cluster-replicas", &replicas, "--cluster-yes"]);
    let (status, out, errors) = run("redis-cli", &args);
    assert_eq!(status, 0, "no cluster: {out}{errors}");
    for node in nodes {
        eventually("the cluster is whole", 60, || {
            node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
        });
    }
}

fn serve(place: &Place, program: &str, config: &str) -> Child {
    place
        .command(program)
        .arg(config)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} does not start ({error}): scripts/deps.sh test"))
}
