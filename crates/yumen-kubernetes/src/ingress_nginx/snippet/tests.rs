use std::fmt::Write;

use proptest::prelude::*;

use super::*;

/// The plan in a short notation: a line for each branch, then for each location.
fn written(plan: &SnippetPlan) -> String {
    let mut out = String::new();
    for branch in &plan.branches {
        write_branch(&mut out, branch);
    }
    for location in &plan.locations {
        let matcher = match &location.matcher {
            LocationMatcher::Exact(path) => format!("= {path}"),
            LocationMatcher::Prefix(path) => path.to_string(),
            LocationMatcher::FinalPrefix(path) => format!("^~ {path}"),
            LocationMatcher::Pattern { pattern, ignore_case } => {
                format!("~{} {pattern}", if *ignore_case { "*" } else { "" })
            }
        };
        writeln!(out, "location {matcher}").unwrap();
        for branch in &location.branches {
            write_branch(&mut out, branch);
        }
    }
    out
}

fn write_branch(out: &mut String, branch: &SnippetBranch) {
    let conditions = branch.conditions.iter().map(|condition| {
        let not = if condition.negated { "!" } else { "" };
        match &condition.test {
            SnippetTest::IsSet => format!("{not}{}", condition.variable),
            SnippetTest::Equals(text) => format!("{} {not}= {text}", condition.variable),
            SnippetTest::Matches { pattern, ignore_case } => {
                let star = if *ignore_case { "*" } else { "" };
                format!("{} {not}~{star} {pattern}", condition.variable)
            }
        }
    });
    let conditions: Vec<String> = conditions.collect();
    let effects = &branch.effects;
    let mut parts: Vec<String> = Vec::new();
    parts.extend(effects.answer.as_ref().map(|answer| match answer {
        SnippetAnswer::Respond { status, body, media_type } => {
            let body =
                body.as_ref().map(|body| format!(" {body:?}", body = body.to_string())).unwrap_or_default();
            format!(
                "{status}{body}{}",
                media_type.as_ref().map(|media| format!(" {media}")).unwrap_or_default()
            )
        }
        SnippetAnswer::Redirect { status, location } => format!("{status} to {location}"),
        SnippetAnswer::RewriteRedirect { status, edit } => {
            format!("{status} from {} to {} {}", edit.pattern, edit.to, edit.keep_query)
        }
    }));
    parts.extend(effects.path.as_ref().map(|edit| {
        let last = if edit.relocates { "last " } else { "" };
        format!("{last}path {} to {} {}", edit.pattern, edit.to, edit.keep_query)
    }));
    parts.extend(effects.request_fields.iter().map(|edit| match &edit.value {
        RequestFieldValue::Text(text) if text.parts.is_empty() => format!("> no {}", edit.name),
        RequestFieldValue::Text(text) => format!("> {}: {text}", edit.name),
        RequestFieldValue::AuthAnswer(text) => format!("> {}: answer {text}", edit.name),
    }));
    parts.extend(effects.response_fields.iter().map(|edit| {
        let statuses = match edit.statuses.len() {
            0 => String::new(),
            10 => " by default".to_owned(),
            _ => format!(" for {:?}", edit.statuses),
        };
        match edit.verb {
            ResponseFieldVerb::Remove => format!("< no {}{statuses}", edit.name),
            verb => format!("< {verb:?} {}: {}{statuses}", edit.name, edit.value),
        }
    }));
    parts.extend(effects.access.iter().map(|rule| {
        format!("{} {}", if rule.allows { "allow" } else { "deny" }, rule.network.as_deref().unwrap_or("all"))
    }));
    parts.extend(effects.settings.iter().map(|setting| format!("{setting:?}")));
    let when = if conditions.is_empty() { String::new() } else { format!("[{}] ", conditions.join(", ")) };
    let parts = if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") };
    writeln!(out, "{when}{parts}").unwrap();
}

#[track_caller]
fn check(place: SnippetPlace, snippet: &str, expected: &str) {
    match translate_snippet(snippet, place) {
        Ok(plan) => {
            let expected: Vec<&str> =
                expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            assert_eq!(written(&plan).lines().collect::<Vec<_>>(), expected, "{snippet}");
        }
        Err(refusal) => panic!("{snippet}\n{refusal}"),
    }
}

#[track_caller]
fn check_refused(place: SnippetPlace, snippet: &str, expected: &str) {
    match translate_snippet(snippet, place) {
        Ok(plan) => panic!("{snippet} was translated:\n{}", written(&plan)),
        Err(refusal) => assert!(refusal.to_string().contains(expected), "{snippet}\n{refusal}"),
    }
}

use SnippetPlace::{Auth, Location, Server};

#[test]
fn fields_of_responses_follow_the_rules_of_both_modules() {
    check(
        Location,
        "add_header X-Frame-Options \"SAMEORIGIN\" always;\nadd_header Cache-Control 'no-store, max-age=0';",
        "< Add X-Frame-Options: SAMEORIGIN; < Add Cache-Control: no-store, max-age=0 by default",
    );
    check(
        Location,
        "more_set_headers \"X-A: b\" 'X-B: $host';\nmore_set_headers -s '404 500' \"X-C: d: e\";\nmore_clear_headers Server 'X-*';",
        "< Set X-A: b; < Set X-B: ${host}; < Set X-C: d: e for [404, 500]; < no Server; < no X-*",
    );
    check(Location, "proxy_hide_header X-Powered-By;", "< no X-Powered-By");
    check(Location, "more_set_headers 'Server:';", "< no Server");
    check(Location, "expires 30d;", "< Set Cache-Control: max-age=2592000 by default");
    check(Location, "expires -1;", "< Set Cache-Control: no-cache by default");
    check(Location, "# nothing\n", "");
}

#[test]
fn fields_of_requests_get_values_of_the_request_and_of_the_auth_service() {
    check(
        Location,
        "proxy_set_header X-Real-Uri $request_uri;\nproxy_set_header Accept-Encoding \"\";\n\
         proxy_set_header l5d-dst-override $service_name.$namespace.svc.cluster.local:80;",
        "> X-Real-Uri: ${real_request_uri}; > no Accept-Encoding; \
         > l5d-dst-override: ${service_name}.${namespace}.svc.cluster.local:80",
    );
    check(
        Location,
        "auth_request_set $email $upstream_http_x_auth_email;\nproxy_set_header X-Email $email;\n\
         auth_request_set $cookie $upstream_http_set_cookie;\nadd_header Set-Cookie $cookie;",
        "> X-Email: answer ${x-auth-email}",
    );
    check(
        Location,
        "auth_request_set $token $upstream_http_x_token;\nproxy_set_header Authorization \"Bearer $token\";\n\
         proxy_set_header Host $http_host;",
        "> Authorization: answer Bearer ${x-token}",
    );
    check_refused(
        Location,
        "auth_request_set $token $upstream_http_x_token;\nproxy_set_header X-A \"$host $token\";",
        "no variables of the request beside it",
    );
    check(Location, "proxy_set_header Upgrade $http_upgrade;\nproxy_set_header Connection \"upgrade\";", "");
    check(Location, "more_set_input_headers 'X-A: 1';\nmore_clear_input_headers X-B;", "> X-A: 1; > no X-B");
    check(Auth, "proxy_set_header X-Forwarded-Host $http_host;", "> X-Forwarded-Host: ${http_host}");
}

#[test]
fn conditions_become_branches_in_their_order() {
    check(
        Location,
        "if ($request_method = POST) { return 405; }\nadd_header X-A b always;",
        "[request_method = POST] 405; < Add X-A: b
         < Add X-A: b",
    );
    check(
        Location,
        "if ($http_user_agent ~* \"(bot|spider)\") {\n  return 403;\n}\nif ($args !~ debug) { return 301 https://$host/x; }",
        "[http_user_agent ~* (bot|spider)] 403
         [args !~ debug] 301 to https://${host}/x
         nothing",
    );
    // Fields of a block replace those around it, and the last block that is entered counts.
    check(
        Location,
        "add_header X-A a always;\nif ($arg_x) { add_header X-B b always; }\nif ($arg_y) { more_set_headers 'X-C: c'; }",
        "[raw_arg_x, raw_arg_y] < Set X-C: c; < Add X-A: a
         [raw_arg_x] < Add X-B: b
         [raw_arg_y] < Set X-C: c; < Add X-A: a
         < Add X-A: a",
    );
    check(
        Location,
        "if ($host = \"a.com\") { return 301 $scheme://b.com$request_uri; }",
        "[host = a.com] 301 to ${scheme}://b.com${real_request_uri}
         nothing",
    );
    check(Location, "if ($cookie_a = '') { return 401; }", "[cookie_a !~ (?s)^.] 401\nnothing");
    check(Location, "if ($http_x != \"\") { return 204; }", "[http_x ~ (?s)^.] 204\nnothing");
}

#[test]
fn variables_that_conditions_set_are_followed() {
    check(
        Location,
        "set $cors '';\nif ($http_origin ~ '^https://a') { set $cors 'true'; }\n\
         if ($request_method = OPTIONS) { set $cors \"${cors}options\"; }\n\
         if ($cors = 'true') { add_header X-Cors yes always; }\n\
         if ($cors = 'trueoptions') { return 204; }",
        "[http_origin ~ ^https://a, request_method = OPTIONS] 204
         [http_origin ~ ^https://a] < Add X-Cors: yes
         nothing",
    );
    check(Location, "set $target $http_x_target;\nproxy_set_header X-T $target;", "> X-T: ${http_x_target}");
    check(Location, "set $off 0;\nif ($off) { return 404; }\nproxy_method POST;", "Method(\"POST\")");
}

#[test]
fn paths_are_rewritten_and_redirected() {
    check(
        Location,
        "rewrite ^/old/(.*)$ /new/$1 permanent;\nrewrite ^(/app)$ $1/ redirect;",
        "[uri ~ ^/old/(.*)$] 301 from ^/old/(.*)$ to /new/$1 true
         [uri ~ ^(/app)$] 302 from ^(/app)$ to $1/ true
         nothing",
    );
    check(
        Location,
        "rewrite ^/a/(.*)$ /$1? break;",
        "[uri ~ ^/a/(.*)$] path ^/a/(.*)$ to /$1 false\nnothing",
    );
    check(
        Location,
        "rewrite ^(.*)$ https://b.com$1 permanent;",
        "301 to https://b.com${uri}${is_args}${args}",
    );
    check(Server, "rewrite ^/(.*)$ https://b.com/$1? redirect;", "302 to https://b.com${uri}");
    for (place, flag) in [(Location, " last"), (Location, ""), (Server, " last"), (Server, " break")] {
        let snippet = format!("rewrite ^/a/(.*)$ /b.php?x=$1{flag};");
        check(place, &snippet, "[uri ~ ^/a/(.*)$] last path ^/a/(.*)$ to /b.php?x=$1 true\nnothing");
    }
    check(Server, "return 301 $scheme://$server_name/x;", "301 to ${scheme}://${host}/x");
    check(Location, "return https://b.com/;", "302 to https://b.com/");
    check(Location, "return 200 'ok $host';", "200 \"ok ${host}\" text/html");
    check(
        Location,
        "default_type application/json;\nreturn 200 '{\"a\":1}';",
        "200 \"{\\\"a\\\":1}\" application/json",
    );
}

#[test]
fn settings_and_lists_of_addresses_are_kept() {
    check(
        Location,
        "client_max_body_size 50m;\nproxy_read_timeout 1h;\nlimit_rate 100k;\naccess_log off;\ngzip off;\netag on;",
        "BodyBytesMax(52428800); ReadTimeoutMs(3600000); ResponseRate(102400); AccessLog(false); Gzip(false)",
    );
    check(
        Location,
        "satisfy any;\nallow 10.0.0.0/8;\ndeny all;",
        "allow 10.0.0.0/8; deny all; SatisfyAny(true)",
    );
    check(Server, "client_max_body_size 5m;\nproxy_set_header A b;\nallow ::1;", "allow ::1");
}

#[test]
fn locations_answer_every_request() {
    check(
        Server,
        "location ~* /\\.(git|env) {\n  deny all;\n  return 404;\n}\nlocation = /robots.txt { default_type text/plain; \
         return 200 \"User-agent: *\\nDisallow: /\"; }\nlocation /private { deny all; }\nlocation ^~ /x { return 301 /y; }",
        "location ~* /\\.(git|env)
         404
         location = /robots.txt
         200 \"User-agent: *\\nDisallow: /\" text/plain
         location /private
         403
         location ^~ /x
         301 to /y",
    );
    check_refused(Server, "location /x { proxy_pass http://10.0.0.1; }", "line 1: proxy_pass");
    check(
        Server,
        "location = /robots.txt { allow all; access_log off; }\nlocation /x { allow ::1; deny all; }\n\
         location /y { if ($arg_a) { return 403; } }",
        "location = /robots.txt
         404; AccessLog(false)
         location /x
         403
         location /y
         [raw_arg_a] 403
         404",
    );
    check_refused(Server, "location /x { rewrite ^/x /y last; }", "no service for the new path");
    check_refused(Location, "location /x { return 403; }", "within a path");
}

#[test]
fn other_directives_name_line_and_reason() {
    check_refused(Location, "add_header A b;\n\nsub_filter a b;", "line 3: sub_filter: bodies");
    check_refused(
        Location,
        "content_by_lua_block { ngx.say('x') }",
        "line 1: content_by_lua_block: the gateway runs no Lua",
    );
    check_refused(Location, "rewrite ^/a /b; return 403;", "would have to read the new path");
    check_refused(Location, "rewrite ^/a /b end;", "\"end\" is no flag");
    check_refused(Location, "rewrite ^/a/(.*) https://b.com/x$1 permanent;", "parts of the path");
    check_refused(Location, "if (-f $request_filename) { return 404; }", "not those on files");
    check_refused(Location, "if ($geoip_country = DE) { return 403; }", "$geoip_country");
    check_refused(
        Location,
        "if ($host ~* ^www\\.(.*)$) { return 301 https://$1/; }",
        "groups of the pattern of `if`",
    );
    check_refused(Location, "if ($arg_a) { if ($arg_b) { return 404; } }", "`if` in `if`");
    check_refused(Location, "if ($arg_a) { proxy_set_header A b; }", "does not allow the directive in `if`");
    check_refused(Location, "if ($arg_a ~ '(') { return 404; }", "is not valid");
    check_refused(Location, "proxy_set_header Transfer-Encoding chunked;", "frames the message");
    check_refused(Location, "add_header 'X A' b;", "no name of a field");
    check_refused(Location, "add_header A $upstream_http_b;", "$upstream_http_b");
    check_refused(Location, "add_header A \"b\nc\";", "control characters");
    check_refused(Location, "add_header A", "has no `;`");
    check_refused(Location, "add_header A b; }", "line 1: unexpected `}`");
    check_refused(Location, "if ($a = \"b", "has no end");
    check_refused(Location, "alias /etc/passwd;", "serves no files");
    check_refused(Location, "load_module x.so;", "nothing is loaded");
    check_refused(Location, "set $host b;", "variable of the request");
    check_refused(Location, "return 600;", "no status 600");
    check_refused(Auth, "add_header A b;", "only proxy_set_header");
    check_refused(Location, &"add_header A b;\n".repeat(600), "more than 512 directives");
    check_refused(Location, &"a { ".repeat(40), "blocks within each other");
    check_refused(Location, &format!("add_header {};", "a ".repeat(100)), "more than 64 words");
    let conditions: String =
        (0..8).map(|at| format!("if ($arg_a{at}) {{ more_set_headers 'A: {at}'; }}\n")).collect();
    check_refused(Location, &conditions, "more than 16 cases");
}

#[test]
fn a_refusal_knows_whether_the_snippet_protects() {
    let guards = |snippet: &str| translate_snippet(snippet, Location).expect_err("a refusal").guards;
    assert!(guards("deny 10.0.0.1;\nsub_filter a b;"));
    assert!(guards("if ($arg_a) { return 403; }\nsub_filter a b;"));
    assert!(guards("auth_basic off;"));
    assert!(guards("deny all"));
    assert!(guards("if ($arg_a) { return 302 https://$host/login; }\nsub_filter a b;"));
    assert!(guards("if ($arg_a) { rewrite ^ /login redirect; }\nsub_filter a b;"));
    assert!(guards("return 503;\nsub_filter a b;"));
    assert!(guards("proxy_set_header X-User \"\";\nsub_filter a b;"));
    assert!(guards("more_clear_input_headers X-User;\nsub_filter a b;"));
    assert!(guards("more_set_input_headers 'X-User: a';\nsub_filter a b;"));
    assert!(!guards("proxy_set_header X-Forwarded-Host a;\nproxy_set_header upgrade b;\nsub_filter a b;"));
    assert!(guards("rewrite ^/a$ /b redirect;\nsub_filter a b;"));
    assert!(guards("return 301 https://$1;"));
    assert!(guards("rewrite_by_lua_block { ngx.exit(403) }"));
    assert!(guards("location /a { internal; }\nsub_filter a b;"));
    assert!(guards("proxy_set_header X-Forwarded-User \"\";\nsub_filter a b;"));
    assert!(guards("rewrite ^/a$ /b last;\nsub_filter a b;"));
    assert!(guards("include /etc/nginx/blocked.conf;"));
    assert!(guards("auth_digest a;"));
    assert!(guards("rewrite_by_lua_file /a.lua;"));
    assert!(guards("proxy_ssl_verify on;"));
    assert!(guards("grpc_set_header X-User \"\";\nsub_filter a b;"));
    assert!(!guards("auth_request_set $a $upstream_http_a;\nheader_filter_by_lua_file /a.lua;"));
    assert!(!guards("sub_filter a b;"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text_is_translated_or_refused(text in "\\PC{0,200}", place in 0..3usize) {
        let _ = translate_snippet(&text, [Location, Server, Auth][place]);
    }

    /// Words of the language in any order reach deeper than random characters.
    #[test]
    fn any_words_are_translated_or_refused(
        words in proptest::collection::vec(
            prop::sample::select(vec![
                "if", "location", "return", "rewrite", "set", "break", "add_header", "more_set_headers",
                "proxy_set_header", "auth_request_set", "deny", "allow", "expires", "(", ")", "($a", "$a", "${a}", "~*",
                "!~", "=", "'x'", "\"$host\"", "^(.*)$", "/x", "/$1", "all", "404", "301", "permanent", "last", "always",
                "-s", "\\", "$", "é", "{", "}", ";", "\n", "#",
            ]),
            0..60,
        ),
        place in 0..3usize,
    ) {
        let text = words.join(" ");
        if let Err(refusal) = translate_snippet(&text, [Location, Server, Auth][place]) {
            prop_assert!(refusal.line >= 1 && !refusal.reason.is_empty());
        }
    }
}
