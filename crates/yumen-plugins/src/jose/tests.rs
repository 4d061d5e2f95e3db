use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    KeyPair, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};

use super::*;

/// The claims of the examples in RFC 7515.
const JOE: &str =
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
/// The modulus of RFC 7515 A.2.
const MODULUS: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
const RS256: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
const ES256: &str = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
const HS256: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const HS256_KEY: &str =
    "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";

fn set(keys: Value) -> JwkSet {
    JwkSet::parse(json!({ "keys": keys }).to_string().as_bytes()).expect("a key set")
}

fn rsa_of_rfc() -> Value {
    json!({"kty": "RSA", "n": MODULUS, "e": "AQAB"})
}

fn ec_of_rfc() -> Value {
    json!({"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"})
}

#[test]
fn examples_of_rfc_7515_are_verified() {
    let keys = set(json!([rsa_of_rfc(), ec_of_rfc()]));
    for (header, signature) in [("eyJhbGciOiJSUzI1NiJ9", RS256), ("eyJhbGciOiJFUzI1NiJ9", ES256)] {
        let text = format!("{header}.{JOE}.{signature}");
        let token = JoseToken::read(&text).expect("a token");
        assert_eq!(token.claims["iss"], "joe");
        assert_eq!(keys.verify(&token, &[]), Ok(()), "{}", token.algorithm);
        // One changed bit of the signed text.
        let text = text.replacen(".eyJpc3MiOiJqb2Ui", ".eyJpc3MiOiJqb2Yi", 1);
        let token = JoseToken::read(&text).expect("a token");
        assert_eq!(keys.verify(&token, &[]), Err(KeyFault::Signature), "{}", token.algorithm);
    }
    let text = format!("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{JOE}.{HS256}");
    let token = JoseToken::read(&text).expect("a token");
    let secret = URL_SAFE_NO_PAD.decode(HS256_KEY).unwrap();
    assert!(JwsVerifier::of_secret(JwsAlgorithm::Hs256, &secret).unwrap().has_signed(&token));
    assert!(!JwsVerifier::of_secret(JwsAlgorithm::Hs384, &secret).unwrap().has_signed(&token));
}

#[test]
fn the_example_of_rfc_8037_is_verified() {
    let keys =
        set(json!([{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]));
    let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    // The payload is a text, so the token is put together here.
    let token = JoseToken {
        signed: "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
        signature: URL_SAFE_NO_PAD.decode(signature).unwrap(),
        algorithm: "EdDSA".to_owned(),
        header: Map::new(),
        claims: Map::new(),
    };
    assert_eq!(keys.verify(&token, &[]), Ok(()));
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der))
}

/// A private key in PEM and its public key as JWK.
fn ec_pair(signing: &'static EcdsaSigningAlgorithm, curve: &str) -> (String, Value, Vec<u8>) {
    let pair = EcdsaKeyPair::generate(signing).unwrap();
    let der = pair.to_pkcs8v1().unwrap();
    let point = pair.public_key().as_ref().to_vec();
    let (x, y) = point[1..].split_at((point.len() - 1) / 2);
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let jwk = json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)});
    (pem(der.as_ref()), jwk, point)
}

fn rsa_pair() -> (String, Value, Vec<u8>) {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).unwrap();
    let public = pair.public_key();
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    // SEQUENCE { INTEGER of 257 bytes with a leading zero, INTEGER 65537 }.
    let components = public.as_ref();
    let (n, e) = (&components[9..265], &components[components.len() - 3..]);
    let jwk = json!({"kty": "RSA", "n": encode(n), "e": encode(e)});
    (pem(der.as_ref()), jwk, public.as_ref().to_vec())
}

const ALL: &[&str] = &[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
    "ES512", "EdDSA", "none", "rs256", "",
];

#[test]
fn the_type_of_the_key_decides_which_algorithms_are_possible() {
    let rsa = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
    for ((private, jwk, public), possible) in [
        (rsa_pair(), &rsa[..]),
        (ec_pair(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"), &["ES256"][..]),
        (ec_pair(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"), &["ES384"][..]),
    ] {
        let keys = set(json!([jwk]));
        for name in ALL {
            // Signed as well as an attacker or the owner of the key can.
            let signer =
                JwsAlgorithm::of(name).and_then(|one| ClientSigner::of_pem(one, &private, None).ok());
            let text = match (signer, JwsAlgorithm::of(name).and_then(JwsAlgorithm::hmac)) {
                (Some(signer), _) => signer.sign(&json!({"sub": "a"})).unwrap(),
                (None, hash) => {
                    let header = URL_SAFE_NO_PAD.encode(json!({"alg": name}).to_string());
                    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode("{\"sub\":\"a\"}"));
                    // A public key as the secret of an HMAC.
                    let hash = hash.unwrap_or(hmac::HMAC_SHA256);
                    let tag = hmac::sign(&hmac::Key::new(hash, &public), signed.as_bytes());
                    let tag = if *name == "none" { String::new() } else { URL_SAFE_NO_PAD.encode(tag) };
                    format!("{signed}.{tag}")
                }
            };
            let Some(token) = JoseToken::read(&text) else { panic!("{name}: no token") };
            let verified = keys.verify(&token, &[]);
            assert_eq!(verified.is_ok(), possible.contains(name), "{} {name}: {verified:?}", jwk["kty"]);
            // The settings restrict the algorithms further.
            let forbidden = keys.verify(&token, &[JwsAlgorithm::Es512]);
            let expected = if *name == "ES512" { KeyFault::UnknownKey } else { KeyFault::Algorithm };
            assert_eq!(forbidden, Err(expected), "{name}");
        }
    }
}

#[test]
fn a_key_with_an_algorithm_verifies_no_other_one() {
    let (private, mut jwk, _) = rsa_pair();
    jwk["alg"] = "RS512".into();
    let keys = set(json!([jwk]));
    for (algorithm, expected) in
        [(JwsAlgorithm::Rs512, Ok(())), (JwsAlgorithm::Rs256, Err(KeyFault::UnknownKey))]
    {
        let text = ClientSigner::of_pem(algorithm, &private, None).unwrap().sign(&json!({})).unwrap();
        assert_eq!(keys.verify(&JoseToken::read(&text).unwrap(), &[]), expected);
    }
}

#[test]
fn the_id_of_a_token_selects_the_key() {
    let (first, mut first_jwk, _) = ec_pair(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256");
    let (second, mut second_jwk, _) = ec_pair(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256");
    (first_jwk["kid"], second_jwk["kid"]) = ("1".into(), "2".into());
    let keys = set(json!([first_jwk, second_jwk]));
    for (pem, kid, expected) in [
        (&first, Some("1"), Ok(())),
        (&second, Some("2"), Ok(())),
        (&first, Some("2"), Err(KeyFault::Signature)),
        (&first, Some("3"), Err(KeyFault::UnknownKey)),
        (&first, None, Err(KeyFault::AmbiguousKey)),
    ] {
        let signer = ClientSigner::of_pem(JwsAlgorithm::Es256, pem, kid.map(str::to_owned)).unwrap();
        let text = signer.sign(&json!({})).unwrap();
        assert_eq!(keys.verify(&JoseToken::read(&text).unwrap(), &[]), expected, "{kid:?}");
    }
}

#[test]
fn a_fetched_set_has_only_public_keys_for_signatures() {
    fn check(keys: Value, expected: Result<usize, &str>) {
        let parsed = JwkSet::parse(json!({ "keys": keys }).to_string().as_bytes());
        match expected {
            Ok(count) => assert_eq!(parsed.map(|set| set.keys.len()), Ok(count), "{keys}"),
            Err(part) => assert!(parsed.as_ref().is_err_and(|error| error.contains(part)), "{keys}"),
        }
    }
    let mut with = rsa_of_rfc();
    with["use"] = "sig".into();
    check(json!([rsa_of_rfc(), ec_of_rfc(), with]), Ok(3));
    with["use"] = "enc".into();
    check(json!([ec_of_rfc(), with]), Ok(1));
    check(json!([with]), Err("no key for signatures"));
    // Of a future type, without a member, on another curve.
    check(
        json!([ec_of_rfc(), {"kty": "AKP"}, {"kty": "RSA", "n": "AQAB"}, {"kty": "EC", "crv": "secp256k1"}, 7]),
        Ok(1),
    );
    check(json!([ec_of_rfc(), {"kty": "oct", "k": "AQAB"}]), Err("private or symmetric"));
    with["d"] = "AQAB".into();
    check(json!([ec_of_rfc(), with]), Err("private or symmetric"));
    // A small RSA key.
    check(
        json!([{"kty": "RSA", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTY", "e": "AQAB"}]),
        Err("no key"),
    );
    check(Value::Array(vec![ec_of_rfc(); 101]), Err("101 keys"));
    assert!(JwkSet::parse(b"<html>").is_err());
}

#[test]
fn malformed_tokens_are_no_tokens() {
    for text in ["", ".", "..", "a.b.c", "e30.e30.", "eyJhbGciOjF9.e30.", "eyJhbGciOiJub25lIn0.W10."] {
        assert!(JoseToken::read(text).is_none(), "{text}");
    }
    // A critical extension.
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","crit":["b64"],"b64":false}"#);
    assert!(JoseToken::read(&format!("{header}.e30.{ES256}")).is_none());
    assert!(JoseToken::read("eyJhbGciOiJub25lIn0.e30.").is_some_and(|token| token.is_unsigned()));
    assert!(JoseToken::read("eyJhbGciOiJub25lIn0.e30.AAAA").is_some_and(|token| !token.is_unsigned()));
}

#[test]
fn times_are_checked_with_a_tolerance() {
    fn check(claims: Value, now_s: u64, expected: Result<(), ClaimTimeFault>) {
        let claims: Map<String, Value> = claims.as_object().unwrap().clone();
        let checked = ClaimTimes::read(&claims).and_then(|times| times.check(now_s, 10));
        assert_eq!(checked, expected, "{claims:?} at {now_s}");
    }
    check(json!({}), 0, Ok(()));
    for (now_s, expected) in [(100, Ok(())), (110, Ok(())), (111, Err(ClaimTimeFault::Expired))] {
        check(json!({"exp": 100}), now_s, expected);
        check(json!({"exp": 100.0}), now_s, expected);
    }
    for (now_s, is_valid) in [(89, false), (90, true), (u64::MAX, true)] {
        check(json!({"nbf": 100}), now_s, if is_valid { Ok(()) } else { Err(ClaimTimeFault::NotYetValid) });
        check(
            json!({"iat": 100}),
            now_s,
            if is_valid { Ok(()) } else { Err(ClaimTimeFault::IssuedInFuture) },
        );
    }
    for malformed in [json!({"exp": "100"}), json!({"nbf": null}), json!({"iat": {}})] {
        check(malformed, 0, Err(ClaimTimeFault::Malformed));
    }
}
