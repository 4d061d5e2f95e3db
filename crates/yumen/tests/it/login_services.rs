//! Logins and decisions of Keycloak, CAS, Casdoor, Feishu and DingTalk, played by stubs that check the wire form.

use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::upstream::{Request, respond};
use crate::harness::{Gateway, Options, Upstream, eventually};

fn gateway(name: &str, settings: &Value, upstream: &Upstream) -> Gateway {
    let route =
        json!({ "id": "1", "uri": "/*", "plugins": { name: settings }, "upstream": upstream.alone() });
    Gateway::with(&json!({ "routes": [route] }), &Options { workers: 2, ..Options::default() })
}

fn body(request: &Request) -> &str {
    std::str::from_utf8(&request.body).expect("the body is text")
}

fn answer(stream: &mut std::net::TcpStream, status: u16, document: &Value) -> bool {
    respond(stream, status, "Content-Type: application/json\r\n", document.to_string().as_bytes())
}

/// `NAME=value` of a cookie that a response sets.
fn cookie(reply: &Reply, name: &str) -> String {
    let begin = format!("{name}=");
    let line = reply.head.lines().find_map(|line| {
        let (field, value) = line.split_once(": ")?;
        (field.eq_ignore_ascii_case("set-cookie") && value.starts_with(&begin)).then_some(value)
    });
    line.unwrap_or_else(|| panic!("no {name} in {}", reply.head)).split(';').next().unwrap().to_owned()
}

/// A realm with one resource `/orders`, which the token `good` may read.
fn keycloak() -> Upstream {
    Upstream::start(|request, stream| {
        let host = request.field("host").unwrap_or_default().to_owned();
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let token = request.field("authorization").unwrap_or_default();
        match (request.method.as_str(), path) {
            ("GET", "/realms/shop/.well-known/uma2-configuration") => answer(
                stream,
                200,
                &json!({
                    "token_endpoint": format!("http://{host}/realms/shop/token"),
                    "resource_registration_endpoint": format!("http://{host}/realms/shop/resources"),
                }),
            ),
            ("GET", "/realms/shop/resources") if token == "Bearer service" => {
                let ids = if query.starts_with("uri=%2Forders&") { json!(["id-1"]) } else { json!([]) };
                answer(stream, 200, &ids)
            }
            ("POST", "/realms/shop/token") if body(request).contains("client_credentials") => {
                assert!(body(request).contains("client_secret=s3cret"));
                answer(stream, 200, &json!({ "access_token": "service", "expires_in": 60 }))
            }
            ("POST", "/realms/shop/token") if body(request).contains("uma-ticket") => {
                match (token, body(request).ends_with("&permission=id-1%23GET")) {
                    ("Bearer good", true) => answer(stream, 200, &json!({ "result": true })),
                    ("Bearer good", false) => answer(stream, 403, &json!({ "error": "access_denied" })),
                    _ => answer(stream, 401, &json!({ "error": "invalid_grant" })),
                }
            }
            _ => answer(stream, 404, &json!({})),
        }
    })
}

#[test]
fn keycloak_decides_by_resource_and_method() {
    let (keycloak, upstream) = (keycloak(), Upstream::text("x"));
    let settings = json!({
        "discovery": format!("http://{}/realms/shop/.well-known/uma2-configuration", keycloak.address),
        "client_id": "shop", "client_secret": "s3cret", "lazy_load_paths": true, "http_method_as_scope": true,
    });
    let gateway = gateway("authz-keycloak", &settings, &upstream);
    let get = |path: &str, token: &str| gateway.get_with(path, &format!("Authorization: {token}\r\n")).status;
    // The document arrives beside the traffic.
    eventually("the endpoints are known", 10, || get("/orders", "Bearer good") == 200);
    assert_eq!(get("/orders?x=1", "good"), 200);
    assert_eq!((get("/orders", "Bearer bad"), get("/other", "Bearer good")), (401, 403));
    let post = gateway.send(
        "POST /orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
    assert_eq!((post.status, post.json()), (403, json!({ "error": "access_denied" })));
    assert_eq!(gateway.get("/orders").status, 401);
    assert_eq!(upstream.requests(), 2);
}

#[test]
fn cas_ticket_becomes_a_session() {
    let upstream = Upstream::text("x");
    let cas = Upstream::start(|request, stream| {
        assert!(request.target.starts_with("/cas/serviceValidate?ticket=ST-"), "{}", request.target);
        let result = match request.target.contains("ticket=ST-1&") {
            true => "<cas:authenticationSuccess><cas:user>ann</cas:user></cas:authenticationSuccess>",
            false => "<cas:authenticationFailure code='INVALID_TICKET'/>",
        };
        let body = format!(
            "<cas:serviceResponse xmlns:cas='http://www.yale.edu/tp/cas'>{result}</cas:serviceResponse>"
        );
        respond(stream, 200, "", body.as_bytes())
    });
    let settings = json!({
        "idp_uri": format!("http://{}/cas", cas.address), "cas_callback_uri": "http://x/callback", "logout_uri": "/logout",
        "cookie": { "secret": "0123456789abcdef0123456789abcdef", "secure": false },
    });
    let gateway = gateway("cas-auth", &settings, &upstream);
    let login = gateway.get("/orders?a=b");
    let location = login.field("location").expect("a redirect").to_owned();
    assert!(
        location.starts_with(&format!("http://{}/cas/login?service=http%3A%2F%2Fx%2Fcallback", cas.address)),
        "{location}"
    );
    let begun = cookie(&login, "CAS_REQUEST_URI");
    let state = location.split("%3Fstate%3D").nth(1).expect("the service has a state");
    let with = |path: &str, cookie: &str| gateway.get_with(path, &format!("Cookie: {cookie}\r\n"));
    let callback = |ticket: &str| with(&format!("/callback?state={state}&ticket={ticket}"), &begun);
    assert_eq!(with("/callback?ticket=ST-1", &begun).status, 401);
    assert_eq!(callback("ST-2").status, 401);
    let done = callback("ST-1");
    assert_eq!((done.status, done.field("location")), (302, Some("/orders?a=b")));
    let session = cookie(&done, "CAS_SESSION");
    // All workers know the session.
    for _ in 0..8 {
        assert_eq!(with("/orders", &session).text(), "x");
    }
    let logout = "<LogoutRequest><SessionIndex>ST-1</SessionIndex></LogoutRequest>";
    let post = |body: &str| {
        let length = body.len();
        gateway.send(format!(
            "POST /callback HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    };
    assert_eq!((post("x").status, with("/orders", &session).status), (400, 200));
    assert_eq!((post(logout).status, with("/orders", &session).status), (200, 302));
}

#[test]
fn casdoor_code_becomes_a_session() {
    let upstream = Upstream::text("x");
    let casdoor = Upstream::start(|request, stream| {
        assert_eq!(
            (request.method.as_str(), request.target.as_str()),
            ("POST", "/api/login/oauth/access_token")
        );
        let expires_in = if body(request).starts_with("code=good&") { 3600 } else { 0 };
        answer(stream, 200, &json!({ "access_token": "t", "expires_in": expires_in }))
    });
    let settings = json!({
        "endpoint_addr": format!("http://{}", casdoor.address), "callback_url": "http://shop.test/callback",
        "client_id": "shop", "client_secret": "s3cret",
    });
    let gateway = gateway("authz-casdoor", &settings, &upstream);
    let login = gateway.get("/orders?a=b");
    let location = login.field("location").expect("a redirect").to_owned();
    let state = location.split("&state=").nth(1).and_then(|rest| rest.split('&').next()).unwrap().to_owned();
    let cookies = cookie(&login, "casdoor_login");
    let with = |path: &str, cookie: &str| gateway.get_with(path, &format!("Cookie: {cookie}\r\n"));
    assert_eq!(with(&format!("/callback?code=bad&state={state}"), &cookies).status, 503);
    assert_eq!(with("/callback?code=good&state=0", &cookies).status, 400);
    let done = with(&format!("/callback?code=good&state={state}"), &cookies);
    assert_eq!((done.status, done.field("location")), (302, Some("/orders?a=b")));
    assert_eq!(with("/orders", &cookie(&done, "casdoor_session")).text(), "x");
    assert_eq!(upstream.requests(), 1);
}

/// Feishu and DingTalk in one server; the code `good` is that of Ann.
fn provider() -> Upstream {
    Upstream::start(|request, stream| {
        let document: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let is_good = document["code"] == "good";
        match request.target.as_str() {
            "/feishu/token" if is_good => answer(stream, 200, &json!({ "code": 0, "access_token": "u" })),
            "/feishu/token" => answer(stream, 400, &json!({ "code": 20003 })),
            "/feishu/user" if request.field("authorization") == Some("Bearer u") => {
                answer(stream, 200, &json!({ "code": 0, "data": { "name": "Ann" } }))
            }
            "/dingtalk/token" => answer(stream, 200, &json!({ "accessToken": "a", "expireIn": 7200 })),
            "/dingtalk/user?access_token=a" if is_good => {
                answer(stream, 200, &json!({ "errcode": 0, "result": { "name": "Ann" } }))
            }
            "/dingtalk/user?access_token=a" => answer(stream, 200, &json!({ "errcode": 40078 })),
            _ => answer(stream, 404, &json!({})),
        }
    })
}

#[test]
fn codes_of_feishu_and_dingtalk_become_sessions() {
    let provider = provider();
    for name in ["feishu", "dingtalk"] {
        let upstream = Upstream::start(|request, stream| {
            let user = request.field("x-userinfo").unwrap_or("-").to_owned();
            respond(stream, 200, "Set-Cookie: own=1\r\n", user.as_bytes())
        });
        let mut settings = json!({
            "app_secret": "s3cret", "secret": "cookie-secret", "redirect_uri": "/login",
            "access_token_url": format!("http://{}/{name}/token", provider.address),
            "userinfo_url": format!("http://{}/{name}/user", provider.address),
        });
        settings[if name == "feishu" { "app_id" } else { "app_key" }] = json!("app");
        if name == "feishu" {
            settings["auth_redirect_uri"] = json!("http://shop.test/cb");
        }
        let gateway = gateway(&format!("{name}-auth"), &settings, &upstream);
        let login = gateway.get("/orders");
        let location = login.field("location").unwrap_or_default();
        let state = location.strip_prefix("/login?state=").expect("the login page gets a state");
        let begun = cookie(&login, &format!("{name}_login"));
        assert_eq!(gateway.get(&format!("/orders?code=good&state={state}")).status, 401, "{name}");
        let with_code = |code: &str| {
            let fields = format!("X-Userinfo: forged\r\nCookie: {begun}\r\n");
            gateway.get_with(&format!("/orders?code={code}&state={state}"), &fields)
        };
        assert_eq!(with_code("bad").status, 401, "{name}");
        let first = with_code("good");
        // {"name":"Ann"}
        assert_eq!(first.text(), "eyJuYW1lIjoiQW5uIn0=", "{name}");
        // The cookie of the upstream stays.
        cookie(&first, "own");
        let session = cookie(&first, &format!("{name}_session"));
        let again = gateway.get_with("/orders", &format!("Cookie: {session}\r\n"));
        assert_eq!(again.text(), "eyJuYW1lIjoiQW5uIn0=", "{name}");
        assert_eq!(upstream.requests(), 2, "{name}");
    }
}

/// A wolf server, whose user Ann may read `/orders`.
fn wolf() -> Upstream {
    Upstream::start(|request, stream| {
        let user = json!({ "id": 7, "username": "ann", "nickname": "Ann B" });
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        match (path, request.field("x-rbac-token")) {
            ("/wolf/rbac/login.rest", None) if body(request).contains("\"password\":\"good\"") => {
                answer(stream, 200, &json!({ "ok": true, "data": { "token": "t-1", "userInfo": user } }))
            }
            ("/wolf/rbac/login.rest", None) => answer(stream, 200, &json!({ "ok": false })),
            ("/wolf/rbac/access_check", Some("t-1")) => {
                let may = query == "appID=shop&resName=%2Forders&action=GET&clientIP=127.0.0.1";
                let status = if may { 200 } else { 401 };
                let reason = if may { "" } else { "no permission to access" };
                answer(stream, status, &json!({ "ok": may, "reason": reason, "data": { "userInfo": user } }))
            }
            _ => answer(stream, 401, &json!({ "ok": false, "reason": "token is invalid" })),
        }
    })
}

#[test]
fn wolf_decides_about_requests_with_its_tokens() {
    let (wolf, upstream) = (wolf(), Upstream::echo("a"));
    let server = format!("http://{}", wolf.address);
    let gateway = Gateway::with(
        &json!({
            "consumers": [
                { "username": "shop", "plugins": { "wolf-rbac": { "appid": "shop", "server": server } } },
                // A server of its own, at which nothing listens.
                { "username": "bar", "plugins": { "wolf-rbac": { "appid": "bar", "server": "http://127.0.0.1:1" } } },
            ],
            "routes": [
                { "id": "1", "uri": "/*", "plugins": { "wolf-rbac": {} }, "upstream": upstream.alone() },
                { "id": "2", "uri": "/apisix/plugin/wolf-rbac/*", "plugins": { "public-api": {} } },
            ],
        }),
        &Options { workers: 2, ..Options::default() },
    );
    let login = |password: &str| {
        let arguments = json!({ "appid": "shop", "username": "ann", "password": password }).to_string();
        let length = arguments.len();
        gateway.send(format!(
            "POST /apisix/plugin/wolf-rbac/login HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{arguments}"
        ))
    };
    let refused = login("bad");
    assert_eq!((refused.status, &refused.json()["rbac_token"]), (200, &Value::Null));
    let token = login("good").json()["rbac_token"].as_str().expect("a token").to_owned();
    assert_eq!(token, "V1#shop#t-1");
    let get = |path: &str, token: &str| {
        gateway.get_with(path, &format!("Authorization: {token}\r\nX-UserId: 1\r\n"))
    };
    let passed = get("/orders", &token);
    assert_eq!((passed.status, passed.field("x-userid")), (200, Some("7")));
    let seen = &passed.json()["fields"];
    for (name, expected) in [("x-userid", "7"), ("x-username", "ann"), ("x-consumer-username", "shop")] {
        assert_eq!(seen[name], expected, "{name} in {seen}");
    }
    let denied = get("/other", &token);
    let expected = json!({ "message": "no permission to access", "username": "ann", "nickname": "Ann B" });
    assert_eq!((denied.status, denied.json()), (401, expected));
    assert_eq!(get("/orders", "V1#shop#other").json(), json!({ "message": "token is invalid" }));
    assert_eq!((get("/orders", "V1#bar#t-1").status, get("/orders", "V1#none#t-1").status), (500, 401));
    assert_eq!(upstream.requests(), 1);
}
