use super::*;

fn exported(leaf: &str, until_unix_s: i64) -> ExportedStaple {
    ExportedStaple { leaf: leaf.to_owned(), answer: BASE64.encode("answer"), until_unix_s }
}

#[test]
fn exported_staples_are_imported_and_invalid_ones_skipped() {
    let (leaf, soon) = (BASE64.encode([7; 32]), now_unix_s() + 600);
    let check = |one: ExportedStaple, expected: Option<(&str, i64)>| {
        let again = StapleCache::with(&[one]).export();
        let found = again.first().map(|one| (one.leaf.as_str(), one.until_unix_s));
        assert_eq!(found, expected);
    };
    check(exported(&leaf, soon), Some((&leaf, soon)));
    check(exported(&leaf, now_unix_s() - 1), None);
    check(exported("no base64", soon), None);
    check(exported(&BASE64.encode([7; 31]), soon), None);
}

#[test]
fn an_answer_that_another_process_tells_is_shown_only_if_it_holds() {
    let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
    let loaded = yumen_snapshot::compile::TlsLoader::pair(
        &yumen_proxy::tls::CertificateLoader::default(),
        &made.cert.pem(),
        &made.signing_key.serialize_pem(),
    );
    let pair = loaded.unwrap().downcast::<CertificateKeyPair>().unwrap();
    let leaf = BASE64.encode(leaf_digest(&pair));
    let staples = StapleCache::with(&[exported(&leaf, now_unix_s() + 600)]);
    assert!(staples.known(&pair).is_none());
}
