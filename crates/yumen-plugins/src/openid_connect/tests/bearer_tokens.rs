//! Bearer tokens: key set, claims, introspection.

use super::*;

#[test]
fn a_bearer_token_is_verified_by_the_key_set() {
    let bench = LoginBench::new(json!({"bearer_only": true, "use_jwks": true}));
    let token = bench.provider.token(&json!({}));
    for _ in 0..2 {
        // The second request finds the token in the table.
        let request = format!("Authorization: bearer {token}\nX-Userinfo: forged\nX_ID_Token: forged");
        let reply = bench.get("/a", &request);
        assert_eq!(reply.status, 200);
        assert_eq!(reply.upstream_field("X-Access-Token").as_ref(), Some(&token));
        let userinfo = STANDARD.decode(reply.upstream_field("X-Userinfo").unwrap()).unwrap();
        let claims: Value = serde_json::from_slice(&userinfo).unwrap();
        assert_eq!(claims["sub"], "alice");
        assert_eq!((reply.upstream_field("X-ID-Token"), reply.upstream_field("X_ID_Token")), (None, None));
    }
    let reply = bench.get("/a", &format!("X-Access-Token: {token}"));
    assert_eq!(reply.upstream_field("X-Access-Token").as_ref(), Some(&token));
}

#[test]
fn a_bearer_token_that_is_not_valid_is_refused() {
    let bench = LoginBench::new(json!({"bearer_only": true, "use_jwks": true, "realm": "r"}));
    let other = MemoryProvider::new(&json!({}));
    let unsigned = |alg: &str| {
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": alg}).to_string());
        format!("{header}.{}.", URL_SAFE_NO_PAD.encode(json!({"iss": ISSUER, "sub": "root"}).to_string()))
    };
    for (token, description) in [
        (
            bench.provider.token(&json!({"iss": "https://other.test"})),
            "the issuer of the token is not allowed",
        ),
        (bench.provider.token(&json!({"events": {super::super::bearer::LOGOUT_EVENT: {}}})), "invalid jwt"),
        (bench.provider.token(&json!({"exp": NOW_S - 121})), "the token has expired"),
        (bench.provider.token(&json!({"nbf": NOW_S + 121})), "the token is not valid yet"),
        (other.token(&json!({})), "the signature of the token is wrong"),
        (unsigned("none"), "the algorithm of the token is not allowed"),
        (unsigned("HS256"), "the algorithm of the token is not allowed"),
        ("opaque".to_owned(), "invalid jwt"),
    ] {
        let reply = bench.bearer(&token);
        let challenge =
            format!("Bearer realm=\"r\", error=\"invalid_token\", error_description=\"{description}\"");
        assert_eq!((reply.status, reply.body.as_str()), (401, ""), "{token}");
        assert_eq!(reply.field("WWW-Authenticate"), Some(challenge));
    }
    let reply = bench.get("/a", "");
    assert_eq!((reply.status, reply.field("WWW-Authenticate")), (401, Some("Bearer realm=\"r\"".to_owned())));
    // A scheme without a token; two fields, of which the upstream might read the other one.
    assert_eq!(bench.get("/a", "Authorization: Bearer").status, 400);
    let token = bench.provider.token(&json!({}));
    let twice = format!("Authorization: Bearer {token}\nAuthorization: Bearer x");
    assert_eq!(bench.get("/a", &twice).status, 400);
    assert_eq!(bench.get("/a", "Authorization: Basic YTpi").status, 401);
}

#[test]
fn claims_of_a_bearer_token_are_checked() {
    fn check(more: Value, claims: Value, expected: Result<(), (u16, &str)>) {
        let mut settings = json!({"bearer_only": true, "use_jwks": true});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let bench = LoginBench::new(settings);
        let reply = bench.bearer(&bench.provider.token(&claims));
        let got = if reply.upstream.is_some() { Ok(()) } else { Err((reply.status, reply.body.as_str())) };
        assert_eq!(got, expected, "{more} {claims}");
    }
    let scopes = json!({"required_scopes": ["read", "admin"]});
    check(scopes.clone(), json!({"scope": "admin read"}), Ok(()));
    check(scopes, json!({}), Err((403, r#"{"error":"required scopes read, admin not present"}"#)));
    let audience = |more: Value| json!({"claim_validator": {"audience": more}});
    check(audience(json!({"match_with_client_id": true})), json!({"aud": ["x", "me"]}), Ok(()));
    check(
        audience(json!({"match_with_client_id": true})),
        json!({"aud": ["x", "you"]}),
        Err((403, r#"{"error":"mismatched audience"}"#)),
    );
    check(
        audience(json!({"required": true, "claim": "for"})),
        json!({}),
        Err((403, r#"{"error":"required audience claim not present"}"#)),
    );
    check(audience(json!({})), json!({"aud": null}), Ok(()));
    let issuers = json!({"claim_validator": {"issuer": {"valid_issuers": ["https://a", "https://b"]}}});
    check(issuers.clone(), json!({"iss": "https://b"}), Ok(()));
    check(issuers, json!({}), Err((401, "")));
    let schema = json!({"claim_schema": {"type": "object", "properties": {"sub": {"const": "alice"}}}});
    check(schema.clone(), json!({}), Ok(()));
    check(schema, json!({"sub": "bob"}), Err((401, "")));
    check(json!({"token_signing_alg_values_expected": "RS256"}), json!({}), Err((401, "")));
    check(json!({"token_signing_alg_values_expected": "RS256,ES256"}), json!({}), Ok(()));
}

#[test]
fn a_bearer_token_is_introspected() {
    let mut bench = LoginBench::new(json!({
        "bearer_only": true, "introspection_endpoint": "https://idp.test/check",
        "introspection_addon_headers": ["X-Tenant"], "claim_validator": {"audience": {"required": true}},
    }));
    bench.answer(200, &json!({"active": true, "sub": "alice", "aud": "me", "exp": NOW_S + 60}));
    let reply = bench.get("/a", "Authorization: Bearer opaque\nX-Tenant: t");
    assert_eq!(reply.upstream_field("X-Access-Token").as_deref(), Some("opaque"));
    let calls = bench.calls();
    assert_eq!((calls.len(), calls[0].target.as_str()), (1, "/check"));
    assert_eq!(calls[0].body, b"token=opaque&client_id=me");
    let field =
        |name: &str| calls[0].fields.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
    assert_eq!(field("Authorization"), Some(format!("Basic {}", STANDARD.encode("me:hush"))));
    assert_eq!(field("X-Tenant").as_deref(), Some("t"));
    // The provider decides on the repeated fields as well, so each request is a question of its own.
    assert_eq!((bench.bearer("opaque").status, bench.calls().len()), (200, 1));
    let mut bench = LoginBench::new(json!({
        "bearer_only": true, "introspection_endpoint": "https://idp.test/check",
        "claim_validator": {"audience": {"required": true}},
    }));
    bench.answer(200, &json!({"active": true, "sub": "alice", "aud": "me", "exp": NOW_S + 60}));
    assert_eq!((bench.bearer("opaque").status, bench.calls().len()), (200, 1));
    // The result is used until it ends.
    assert_eq!((bench.bearer("opaque").status, bench.calls().len()), (200, 0));
    for (status, body, expected) in [
        (200, json!({"active": false}), 401),
        (200, json!({"active": "true"}), 401),
        (200, json!({}), 401),
        (200, json!([]), 401),
        (503, json!({"active": true}), 401),
        (200, json!({"active": true, "sub": "alice"}), 403),
    ] {
        bench.answer(status, &body);
        assert_eq!(bench.bearer("other").status, expected, "{status} {body}");
    }
    bench.bench.host.answer = Some(Err(SubrequestFault::Timeout));
    assert_eq!(bench.bearer("other").status, 401);
}
