use yumen_plugin::KafkaMechanism;

use super::ScramLogin;

const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
const SERVER_FIRST: &str =
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

fn login() -> ScramLogin {
    ScramLogin::new(KafkaMechanism::ScramSha256, "user", "pencil", NONCE.to_owned()).unwrap()
}

/// The example of RFC 7677 §3.
#[test]
fn the_messages_are_those_of_the_standard() {
    let login = login();
    assert_eq!(login.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    let proof = login.proof(SERVER_FIRST.as_bytes()).unwrap();
    assert_eq!(
        proof.message,
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    );
    assert_eq!(proof.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
    for other in ["v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "e=other-error", "v=", "v=!", ""] {
        assert!(proof.check(other.as_bytes()).is_err(), "{other}");
    }
}

#[test]
fn foreign_and_costly_challenges_are_refused() {
    for (server_first, why) in [
        ("r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "foreign"),
        ("r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "foreign"),
        ("r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=100000000", "iterations"),
        ("r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=0", "malformed"),
        ("r=rOprNGfwEbeRWgbNEkqOx,s=!,i=4096", "malformed"),
        ("m=ext,r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "malformed"),
        ("", "malformed"),
    ] {
        let refused = login().proof(server_first.as_bytes()).err().expect(why);
        assert!(refused.contains(why), "{server_first}: {refused}");
    }
}

#[test]
fn names_are_escaped_and_plain_is_no_scram() {
    let login = ScramLogin::new(KafkaMechanism::ScramSha512, "a=b,c", "p", "n".to_owned()).unwrap();
    assert_eq!(login.first(), "n,,n=a=3Db=2Cc,r=n");
    assert!(login.proof(b"r=nx,s=QUJD,i=4096").is_ok());
    assert!(ScramLogin::new(KafkaMechanism::Plain, "a", "b", "n".to_owned()).is_none());
}
