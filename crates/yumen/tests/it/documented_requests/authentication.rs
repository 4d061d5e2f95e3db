//! Pages of plugins that authenticate or authorize.

use super::{check, check_plugins, gateway};

#[test]
fn consumers_and_credentials_of_the_pages_are_accepted() {
    let gateway = gateway();
    check(
        &gateway,
        &[
            ("PUT consumers", r#"{"username":"jack","labels":{"company":"a","team":"b"}}"#, 201, ""),
            (
                "PUT consumers/jack/credentials",
                r#"{"id":"k","plugins":{"key-auth":{"key":"jack-key"}}}"#,
                201,
                r#"{"/key":"/apisix/consumers/jack/credentials/k"}"#,
            ),
            (
                "PUT consumers/jack/credentials/b",
                r#"{"plugins":{"basic-auth":{"username":"jack","password":"pw"}}}"#,
                201,
                r#"{"/value/id":"b"}"#,
            ),
            (
                "PUT consumers/jack/credentials/j",
                r#"{"plugins":{"jwt-auth":{"key":"j","secret":"$env://DOCUMENTED_SECRET","algorithm":"HS256","exp":3600}}}"#,
                201,
                "",
            ),
            (
                "PUT consumers/jack/credentials/h",
                r#"{"plugins":{"hmac-auth":{"key_id":"h","secret_key":"s"}}}"#,
                201,
                "",
            ),
            (
                "PUT consumers/jack/credentials/l",
                r#"{"plugins":{"ldap-auth":{"user_dn":"cn=a,dc=b"}}}"#,
                201,
                "",
            ),
            (
                "PUT consumers/jack/credentials/la",
                r#"{"plugins":{"ldap-auth-advanced":{"user_dn":"cn=c,dc=b"}}}"#,
                201,
                "",
            ),
            (
                "PUT consumers/jack/credentials/e",
                r#"{"plugins":{"jwe-decrypt":{"key":"e","secret":"0123456789abcdef0123456789abcdef"}}}"#,
                201,
                "",
            ),
            (
                "PUT consumers",
                r#"{"username":"wolf","plugins":{"wolf-rbac":{"server":"http://127.0.0.1:12180","appid":"r"}}}"#,
                201,
                "",
            ),
            (
                "PUT consumers",
                r#"{"username":"anonymous","plugins":{"limit-count":{"count":1,"time_window":30,"rejected_code":429,"policy":"local"}}}"#,
                201,
                "",
            ),
            ("GET consumers/jack/credentials", "", 200, r#"{"/total":7}"#),
            ("GET consumers/jack/credentials/k", "", 200, r#"{"/value/plugins/key-auth/key":"jack-key"}"#),
            ("GET consumers", "", 200, r#"{"/total":3}"#),
            (
                "PUT consumers/jack/credentials/two",
                r#"{"plugins":{"key-auth":{"key":"a"},"basic-auth":{"username":"a","password":"b"}}}"#,
                400,
                "",
            ),
            (
                "PUT consumers/none/credentials/k",
                r#"{"plugins":{"key-auth":{"key":"n"}}}"#,
                404,
                r#"{"/error_msg":"consumer not found"}"#,
            ),
            (
                "PUT consumers/jack/credentials/again",
                r#"{"plugins":{"basic-auth":{"username":"jack","password":"x"}}}"#,
                400,
                "",
            ),
            ("DELETE consumers/jack/credentials/k", "", 200, r#"{"/deleted":"1"}"#),
            ("DELETE consumers/jack", "", 200, ""),
            ("GET consumers/jack/credentials/b", "", 404, ""),
        ],
    );
}

#[test]
fn routes_of_the_authentication_pages_are_accepted() {
    check_plugins(&[
        ("key-auth", "{}"),
        (
            "key-auth",
            r#"{"header":"apikey","query":"auth","hide_credentials":true,"anonymous_consumer":"anonymous"}"#,
        ),
        ("basic-auth", r#"{"hide_credentials":false,"anonymous_consumer":"anonymous"}"#),
        (
            "jwt-auth",
            r#"{"header":"h","query":"q","cookie":"c","hide_credentials":true,"anonymous_consumer":"a"}"#,
        ),
        (
            "hmac-auth",
            r#"{"signed_headers":["date","x-a"],"validate_request_body":true,"hide_credentials":true,"anonymous_consumer":"a"}"#,
        ),
        ("jwe-decrypt", r#"{"header":"Authorization","forward_header":"Authorization"}"#),
        ("ldap-auth", r#"{"base_dn":"ou=users,dc=a","ldap_uri":"localhost:1389","uid":"cn"}"#),
        (
            "ldap-auth-advanced",
            r#"{"ldap_uri":"127.0.0.1:1389","base_dn":"dc=a","attribute":"uid","consumer_required":false,"use_ldaps":true,"ssl_verify":true}"#,
        ),
        (
            "multi-auth",
            r#"{"auth_plugins":[{"basic-auth":{}},{"key-auth":{"query":"k","hide_credentials":true,"header":"k"}}]}"#,
        ),
        ("wolf-rbac", "{}"),
        (
            "openid-connect",
            r#"{"client_id":"a","client_secret":"b","discovery":"http://idp/.well-known/openid-configuration","scope":"openid","redirect_uri":"http://a/cb","ssl_verify":false,"session":{"secret":"0123456789abcdef"},"bearer_only":true,"realm":"r"}"#,
        ),
        ("authz-casbin", r#"{"model_path":"/m.conf","policy_path":"/p.csv","username":"user"}"#),
        (
            "authz-casdoor",
            r#"{"endpoint_addr":"http://a:8000","callback_url":"http://b/cb","client_id":"c","client_secret":"d"}"#,
        ),
        (
            "authz-keycloak",
            r#"{"lazy_load_paths":true,"resource_registration_endpoint":"http://k/set","discovery":"http://k/d","client_id":"c","client_secret":"s","permissions":["p#access"],"token_endpoint":"http://k/t"}"#,
        ),
        (
            "cas-auth",
            r#"{"idp_uri":"http://i/cas","cas_callback_uri":"/cb","logout_uri":"/out","cookie":{"secret":"0123456789abcdef0123456789abcdef","secure":false}}"#,
        ),
        (
            "saml-auth",
            r#"{"sp_issuer":"https://sp","idp_uri":"https://idp","idp_cert":"c","login_callback_uri":"https://sp/in","logout_uri":"https://sp/out","logout_callback_uri":"https://sp/cb","logout_redirect_uri":"https://sp/bye","sp_cert":"c","sp_private_key":"k","secret":"0123456789abcdef"}"#,
        ),
        (
            "dingtalk-auth",
            r#"{"app_key":"a","app_secret":"b","secret":"0123456789abcdef","redirect_uri":"https://l","code_query":"q","code_header":"h","secret_fallbacks":["0123456789abcdeg"]}"#,
        ),
        (
            "feishu-auth",
            r#"{"app_id":"a","app_secret":"b","secret":"0123456789abcdef","auth_redirect_uri":"https://a/cb","redirect_uri":"https://a/o"}"#,
        ),
        (
            "forward-auth",
            r#"{"uri":"http://127.0.0.1:9080/auth","request_headers":["Authorization"],"upstream_headers":["X-User-ID"],"client_headers":["Location"],"request_method":"GET","extra_headers":{"tenant":"$arg_tenant"}}"#,
        ),
        (
            "opa",
            r#"{"host":"http://127.0.0.1:8181","policy":"p","with_route":true,"with_service":true,"with_consumer":true}"#,
        ),
        ("consumer-restriction", r#"{"whitelist":["a"]}"#),
        (
            "consumer-restriction",
            r#"{"allowed_by_methods":[{"user":"a","methods":["GET"]},{"user":"b","methods":["POST"]}]}"#,
        ),
        ("consumer-restriction", r#"{"type":"service_id","whitelist":["s"],"rejected_code":403}"#),
        (
            "acl",
            r#"{"allow_labels":{"team":["a"]},"deny_labels":{"role":["g"]},"rejected_code":401,"rejected_msg":"no"}"#,
        ),
        ("attach-consumer-label", r#"{"headers":{"X-Department":"$department","X-Role":"$role"}}"#),
    ]);
}
