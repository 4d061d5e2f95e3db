//! HTTP/3 heads that never become requests: responses, counters and log lines equal those of other versions.

use serde_json::{Value, json};

use crate::harness::certs::{self, Authority};
use crate::harness::http2;
use crate::harness::http3::Http3Client;
use crate::harness::upstream::Upstream;
use crate::harness::{Gateway, Options, Scratch, eventually};

/// The field section of `GET /` with these fields, from the static table and literals.
fn head(fields: &[u8]) -> Vec<u8> {
    let section = [b"\x00\x00\xd1\xd7\xc1\x50\x06a.test", fields].concat();
    let length = 0x4000 | u16::try_from(section.len()).unwrap();
    [&[1], &length.to_be_bytes()[..], &section].concat()
}

/// The response to a stream of these bytes, which is ended or left open, or the code of its reset.
async fn ask(client: &Http3Client, bytes: &[u8], ends: bool) -> Result<Vec<u8>, u64> {
    let (mut sender, mut receiver) = client.quic.open_bi().await.unwrap();
    sender.write_all(bytes).await.unwrap();
    if ends {
        sender.finish().unwrap();
    }
    receiver.read_to_end(10_000).await.map_err(|error| match error {
        quinn::ReadToEndError::Read(quinn::ReadError::Reset(code)) => code.into_inner(),
        error => panic!("{error}"),
    })
}

#[test]
fn a_head_that_is_too_large_too_slow_or_malformed_is_counted_and_logged() {
    let (scratch, upstream) = (Scratch::new(), Upstream::text("x"));
    let log = scratch.file("access.log");
    let authority = Authority::new("known");
    let pair = authority.sign("a", &["a.test"], certs::ecdsa());
    let node = format!(
        "listen: [{{address: '127.0.0.1:0'}}, {{address: '127.0.0.1:0', tls: true, http3: true}}]\n\
         limits: {{head_bytes: 4096}}\ntimeouts: {{head_ms: 500}}\n\
         logs: {{access: {{enabled: true, path: \"{}\", format: json}}}}",
        log.display()
    );
    let ssl = json!({ "id": "a", "cert": pair.cert, "key": pair.key, "snis": ["a.test"] });
    let document =
        json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream.alone() }], "ssls": [ssl] });
    let options = Options { node: &node, own_listeners: true, workers: 1, ..Options::default() };
    let gateway = Gateway::with(&document, &options);
    http2::run(async {
        let client = Http3Client::connect(gateway.https, "a.test", &authority.cert, None).await.unwrap();
        // A name of one letter and a value of 5000 bytes.
        let large = [b"\x21a\x7f\x89\x26".as_slice(), &[b'v'; 5000]].concat();
        let answer = ask(&client, &head(&large), true).await.expect("an answer");
        assert_eq!(answer.first(), Some(&1), "a head: {answer:02x?}");
        // An upper-case name: H3_MESSAGE_ERROR.
        assert_eq!(ask(&client, &head(b"\x21A\x01v"), true).await, Err(0x10e));
        // No frame: H3_REQUEST_INCOMPLETE.
        assert_eq!(ask(&client, b"", true).await, Err(0x10d));
        // Half of a head: H3_REQUEST_REJECTED.
        assert_eq!(ask(&client, &head(b"")[..6], false).await, Err(0x10b));
        assert_eq!(client.get("/").await.status, 200);
    });
    let counted =
        |fault: &str| gateway.metric(&format!("yumen_faults_total{{fault=\"{fault}\",side=\"client\"}}"));
    eventually("all are counted", 10, || (counted("client_head"), counted("client_timeout")) == (3.0, 1.0));
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    };
    eventually("all are logged", 10, || lines().len() == 5);
    let statuses: Vec<Value> = lines().iter().map(|line| line["status"].clone()).collect();
    assert_eq!(json!(statuses), json!([431, 400, 400, 408, 200]));
    assert!(lines().iter().all(|line| line["remote_addr"] == "127.0.0.1"));
}
