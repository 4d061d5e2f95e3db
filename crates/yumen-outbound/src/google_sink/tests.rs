use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use yumen_plugin::{GoogleAccount, SinkRequest, SinkTls};

use super::GoogleSink;
use crate::connector::{OutboundConnector, SendFault};
use crate::service_account::ServiceAccountKey;

fn account(address: &str) -> GoogleAccount {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    GoogleAccount {
        endpoint: format!("http://{address}"),
        token_endpoint: format!("http://{address}"),
        token_target: "/token".to_owned(),
        token_url: format!("http://{address}/token"),
        client_email: "node@shop.test".to_owned(),
        private_key: key.serialize_pem(),
        scope: "a b".to_owned(),
        tls: SinkTls::default(),
        timeout_ms: 20_000,
    }
}

fn assertion(account: &GoogleAccount, unix_s: u64) -> Result<String, String> {
    let GoogleAccount { client_email, private_key, token_url, scope, .. } = account;
    ServiceAccountKey { client_email, private_key, token_url, scope }.assertion(unix_s)
}

fn entries() -> SinkRequest {
    SinkRequest {
        method: "POST",
        target: "/write".to_owned(),
        body: vec![Bytes::from("{}")],
        entries: 1,
        ..SinkRequest::default()
    }
}

#[test]
fn the_assertion_names_account_scope_and_time() {
    let account = account("a.test");
    let text = assertion(&account, 1_700_000_000).unwrap();
    let parts: Vec<&str> = text.split('.').collect();
    let decode =
        |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    assert_eq!(decode(parts[0]), json!({"alg": "RS256", "typ": "JWT"}));
    let expected = json!({
        "iss": "node@shop.test", "sub": "node@shop.test", "aud": "http://a.test/token", "scope": "a b",
        "iat": 1_700_000_000, "exp": 1_700_003_600,
    });
    assert_eq!(decode(parts[1]), expected);
    assert_eq!(URL_SAFE_NO_PAD.decode(parts[2]).unwrap().len(), 256);
    for key in ["", "k", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
        let account = GoogleAccount { private_key: key.to_owned(), ..account.clone() };
        assert_eq!(assertion(&account, 0), Err("private_key is no RSA key in PEM".to_owned()));
    }
}

/// Serves tokens `t1`, `t2`, …, and answers entries by the list of statuses. Returns the address and all requests.
async fn google(statuses: Vec<u16>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let (requests, statuses) = (seen.clone(), Arc::new(Mutex::new(statuses)));
    tokio::spawn(async move {
        let mut tokens = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut text = Vec::new();
            // One request per connection: the head, and the body up to its last byte.
            while !is_whole(&text) {
                let mut room = [0; 4096];
                match stream.read(&mut room).await {
                    Ok(count @ 1..) => text.extend_from_slice(&room[..count]),
                    _ => break,
                }
            }
            let text = String::from_utf8(text).unwrap();
            let (status, body) = match text.starts_with("POST /token ") {
                true => {
                    tokens += 1;
                    (
                        200,
                        format!(r#"{{"access_token":"t{tokens}","token_type":"Bearer","expires_in":3600}}"#),
                    )
                }
                false => (statuses.lock().unwrap().remove(0), "{}".to_owned()),
            };
            requests.lock().unwrap().push(text);
            let reply = format!(
                "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(reply.as_bytes()).await;
        }
    });
    (address, seen)
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0_usize)
}

#[tokio::test]
async fn a_token_serves_until_it_is_refused() {
    let (address, seen) = google(vec![200, 200, 401, 200]).await;
    let mut sink = GoogleSink::new(account(&address), &OutboundConnector::default());
    for status in [200, 200, 401, 200] {
        assert_eq!(sink.send(&entries()).await.unwrap().status, status);
    }
    let seen = seen.lock().unwrap();
    let short = |text: &String| {
        let field = text.lines().find_map(|line| line.strip_prefix("authorization: "));
        field.unwrap_or("token").to_owned()
    };
    let found: Vec<String> = seen.iter().map(short).collect();
    assert_eq!(found, ["token", "Bearer t1", "Bearer t1", "Bearer t1", "token", "Bearer t2"]);
    let grant = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=ey";
    assert!(seen[0].contains(grant), "{}", seen[0]);
}

#[tokio::test]
async fn an_account_without_a_key_sends_nothing() {
    let (address, seen) = google(Vec::new()).await;
    let account = GoogleAccount { private_key: "k".to_owned(), ..account(&address) };
    let result = GoogleSink::new(account, &OutboundConnector::default()).send(&entries()).await;
    assert!(matches!(&result, Err(SendFault::Failed(why)) if why.contains("private_key")), "{result:?}");
    assert!(seen.lock().unwrap().is_empty());
}
