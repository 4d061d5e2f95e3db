use super::translate_log_line;

#[track_caller]
fn check(written: &str, line: &str, unknown: &[&str]) {
    let translated = translate_log_line(written).unwrap();
    assert_eq!(translated.line, line);
    assert_eq!(translated.unknown, unknown);
}

#[test]
fn variables_get_the_names_of_the_access_log() {
    check(
        "$remote_addr [$time_local] \"$request\" $status $req_id",
        "${remote_addr} [${time_local}] \"${request}\" ${status} ${request_id}",
        &[],
    );
    check("${http_x_a}b $sent_http_etag $request_uri", "${http_x_a}b ${sent_http_etag} ${request_uri}", &[]);
    check(
        r#"{"ns":"$namespace","len":$upstream_response_length}"#,
        r#"{"ns":"-","len":-}"#,
        &["namespace", "upstream_response_length"],
    );
}

#[test]
fn a_dollar_sign_without_a_name_is_refused() {
    assert!(translate_log_line("$ $status").is_err());
    assert!(translate_log_line("${status").is_err());
}
