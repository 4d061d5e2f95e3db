use super::{SigningScope, time_text};

#[test]
fn requests_of_the_published_suite_have_the_published_signatures() {
    let scope = SigningScope {
        access_key_id: "AKIDEXAMPLE",
        secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        region: "us-east-1",
        service: "service",
        time: "20150830T123600Z",
    };
    let fields = [("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z")];
    for (method, signature) in [
        ("GET", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    ] {
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, Signature={signature}"
        );
        assert_eq!(scope.authorization(method, "/", &fields, b""), expected);
    }
}

#[test]
fn times_have_the_short_form() {
    assert_eq!(time_text(1_440_938_160), "20150830T123600Z");
}
