//! NGINX as an upstream: serves files, accepts uploads, optionally over TLS.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use super::{Scratch, eventually, free_port};

pub(crate) struct Nginx {
    pub(crate) address: SocketAddr,
    pub(crate) scratch: Scratch,
    child: Child,
}

impl Nginx {
    /// Serves `files/` of its scratch directory; `PUT /upload/NAME` stores a body there; gzip is on.
    pub(crate) fn start() -> Nginx {
        Nginx::with("", "", "")
    }

    /// The same over TLS with this certificate and key, in PEM.
    pub(crate) fn tls(cert: &str, key: &str) -> Nginx {
        Nginx::with(cert, key, "")
    }

    /// The same over TLS, only for clients with a certificate of this authority.
    pub(crate) fn mutual(cert: &str, key: &str, ca: &str) -> Nginx {
        Nginx::with(cert, key, ca)
    }

    fn with(cert: &str, key: &str, ca: &str) -> Nginx {
        let scratch = Scratch::new();
        let address = free_port();
        for dir in ["files/upload", "temp"] {
            std::fs::create_dir_all(scratch.file(dir)).expect("a directory");
        }
        let tls = if cert.is_empty() {
            String::new()
        } else {
            let (cert, key) = (scratch.write("cert.pem", cert), scratch.write("key.pem", key));
            let clients = match ca.is_empty() {
                true => String::new(),
                false => {
                    format!("ssl_client_certificate {}; ssl_verify_client on;", scratch.write("ca.pem", ca))
                }
            };
            // Accepts short keys, which the library's default security level refuses.
            let suites = "ssl_ciphers DEFAULT:@SECLEVEL=0;";
            format!("{suites} ssl_certificate {cert}; ssl_certificate_key {key}; {clients}")
        };
        let ssl = if cert.is_empty() { "" } else { " ssl" };
        let dir = scratch.path().display();
        let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {dir}/temp/{kind};\n"))
            .concat();
        // Started as root, its workers would be `nobody` without access to the scratch directory.
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let config = format!(
            "{user} daemon off; master_process on; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log;
             events {{ worker_connections 4096; }}
             http {{
               access_log off; {temp}
               gzip on; gzip_min_length 1; gzip_types text/plain application/octet-stream;
               client_max_body_size 0; keepalive_requests 100000;
               server {{
                 listen {address}{ssl}; {tls}
                 location / {{ root {dir}/files; }}
                 location /upload/ {{ root {dir}/files; dav_methods PUT; }}
                 location = /client {{ return 200 \"$ssl_client_s_dn\"; }}
                 location = /host {{ return 200 \"$http_host $ssl_server_name\"; }}
               }}
             }}"
        );
        let config = scratch.write("nginx.conf", config);
        // Debian installs NGINX in /usr/sbin, which is often not in PATH.
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let child = Command::new("nginx")
            .env("PATH", path)
            .args(["-p", &dir.to_string(), "-e", &format!("{dir}/error.log"), "-c", &config])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx starts: scripts/deps.sh test");
        eventually("nginx listens", 10, || TcpStream::connect(address).is_ok());
        Nginx { address, scratch, child }
    }

    /// Stores a file to serve; returns its path.
    pub(crate) fn put(&self, name: &str, content: &[u8]) -> String {
        let path = self.scratch.file("files").join(name);
        std::fs::write(&path, content).expect("a file");
        path.display().to_string()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
