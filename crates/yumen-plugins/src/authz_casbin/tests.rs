use serde::Deserialize;
use serde_json::{Value, json};
use yumen_plugin::ObjectLookup;

use super::policy::{CasbinEnforcer, CasbinPart};
use crate::testing::PluginBench;

const MODEL: &str = "[request_definition]\nr = sub, obj, act\n[policy_definition]\np = sub, obj, act\n\
                     [role_definition]\ng = _, _\n[policy_effect]\ne = some(where (p.eft == allow))\n\
                     [matchers]\nm = (g(r.sub, p.sub) || keyMatch(r.sub, p.sub)) && keyMatch(r.obj, p.obj) && \
                     keyMatch(r.act, p.act)\n";
const POLICY: &str = "p, *, /, GET\np, admin, *, *\ng, alice, admin\n";

/// Decisions of another implementation: `node-casbin` 5.51. Requests are `user path method`.
#[derive(Deserialize)]
struct RecordedDecisions {
    name: String,
    model: String,
    policy: String,
    allowed: Vec<String>,
    denied: Vec<String>,
}

#[test]
fn decisions_equal_those_of_another_implementation() {
    let recorded: Vec<RecordedDecisions> = serde_json::from_str(include_str!("decisions.json")).unwrap();
    assert!(recorded.len() > 15);
    for case in recorded {
        let RecordedDecisions { name, model, policy, allowed, denied } = case;
        let enforcer =
            CasbinEnforcer::compile(&model, &policy).unwrap_or_else(|why| panic!("{name}: {why:?}"));
        let allows = |request: &String| {
            let mut parts = request.split(' ');
            let mut part = || parts.next().expect("three parts");
            enforcer.allows([part(), part(), part()])
        };
        assert!(!allowed.is_empty() && !denied.is_empty(), "{name}");
        allowed.iter().for_each(|request| assert!(allows(request), "{name}: {request} is allowed"));
        denied.iter().for_each(|request| assert!(!allows(request), "{name}: {request} is denied"));
    }
}

fn with_matcher(matcher: &str) -> String {
    let (top, _) = MODEL.split_once("m = ").unwrap();
    format!("{top}m = {matcher}\n")
}

#[test]
fn lists_comments_and_continued_lines_are_read() {
    let model = with_matcher(
        "r.obj in ('/a', \"/#b\") && \\\n r.act in (p.act) # a comment\n; another comment\n# and one more",
    );
    let enforcer = CasbinEnforcer::compile(&model, "# users\n\np, x, y, GET\n").unwrap();
    for (request, expected) in [
        (["u", "/a", "GET"], true),
        (["u", "/#b", "GET"], true),
        (["u", "/c", "GET"], false),
        (["u", "/a", "PUT"], false),
    ] {
        assert_eq!(enforcer.allows(request), expected, "{request:?}");
    }
}

#[track_caller]
fn check_refused(model: &str, policy: &str, part: CasbinPart, why: &str) {
    let refused = CasbinEnforcer::compile(model, policy).expect_err(why);
    assert_eq!(refused.0, part, "{}", refused.1);
    assert!(refused.1.contains(why), "{} lacks {why}", refused.1);
}

#[test]
fn other_grammar_of_matchers_is_refused() {
    for (matcher, why) in [
        ("r.sub == p.sub && eval(p.rule)", "the function eval is not evaluated here"),
        ("r.sub.Age == p.sub", "r.sub is a text and has no attributes"),
        ("r.sub < p.sub", "`<`, which is not evaluated here"),
        ("r.sub == p.owner", "p.owner is not defined"),
        ("r.sub == 1", "`1`, which is not evaluated here"),
        ("r.sub", "where a condition is needed"),
        ("r.sub == true", "compares a text with a condition"),
        ("!r.sub", "negates a text"),
        ("g(r.sub)", "g needs 2 arguments"),
        ("g(r.sub, p.sub, p.obj)", "g needs 2 arguments"),
        ("keyMatch(r.obj)", "keyMatch needs 2 arguments"),
        ("keyMatch(p.obj, r.obj)", "the second argument of keyMatch is a pattern"),
        ("g2(r.obj, p.obj)", "the function g2 is not evaluated here"),
        ("r.sub == p.sub &&", "ends too early"),
        ("(r.sub == p.sub", "`)` is missing"),
        ("r.sub == p.sub)", "`)` is unexpected"),
        ("r.sub == \"a", "has no end"),
        ("r.sub == 'a\\'b'", "backslash"),
        ("regexMatch(r.obj, '(')", "invalid pattern"),
        ("regexMatch(r.obj, '(?=a)')", "invalid pattern"),
        ("globMatch(r.obj, '/**')", "`**`"),
        ("ipMatch(r.sub, 'x')", "no address or network"),
    ] {
        check_refused(&with_matcher(matcher), POLICY, CasbinPart::Model, why);
    }
    let deep = with_matcher(&format!("{}true{}", "(".repeat(100), ")".repeat(100)));
    check_refused(&deep, POLICY, CasbinPart::Model, "nested deeper");
    let deep = with_matcher(&format!("{}true", "!".repeat(10_000)));
    check_refused(&deep, POLICY, CasbinPart::Model, "nested deeper");
}

#[test]
fn other_definitions_are_refused() {
    let change = |from: &str, to: &str| MODEL.replacen(from, to, 1);
    for (model, why) in [
        (String::new(), "no section [request_definition]"),
        (change("r = sub, obj, act", "r = sub, obj"), "r has 2 members"),
        (change("p = sub, obj, act", "p = sub, sub"), "no list of different names"),
        (change("g = _, _", "g = _"), "neither _, _ nor _, _, _"),
        (change("g = _, _", "g = _, _\ng = _, _"), "g is defined twice"),
        (change("some(where (p.eft == allow))", "subjectPriority(p.eft) || deny"), "is not evaluated here"),
        (change("[matchers]", "[matchers]\nm2 = true"), "m2 in section [matchers]"),
        (change("[policy_definition]", "[policy_definition]\np2 = sub"), "p2 in section"),
        (change("[matchers]", "[constraint_definition]\nc = x\n[matchers]"), "constraint_definition"),
        (change("[matchers]", "matchers"), "neither a section nor a definition"),
    ] {
        check_refused(&model, POLICY, CasbinPart::Model, why);
    }
}

#[test]
fn broken_policies_are_refused_with_their_line() {
    for (policy, why) in [
        ("", "no line that begins with `p,`"),
        ("# nothing\ng, alice, admin", "no line that begins with `p,`"),
        ("p, a, b, c\np, a, b", "line 2 of the policy: the line has 2 values after p; the model defines 3"),
        ("p, a, b, c, d", "has 4 values"),
        ("p, a, b, c\ng, alice", "line 2 of the policy: g has 2 values"),
        ("p2, a, b, c", "the model does not define p2"),
        ("p, \"a, b, c", "a quote is not closed"),
        ("p, \"a\" b, c, d", "text follows a closing quote"),
    ] {
        check_refused(MODEL, policy, CasbinPart::Policy, why);
    }
    let with_effect = MODEL.replace("p = sub, obj, act", "p = sub, obj, act, eft");
    check_refused(&with_effect, "p, a, b, c, maybe", CasbinPart::Policy, "neither allow nor deny");
    let with_priority = MODEL.replace("p = sub, obj, act", "p = priority, sub, obj, act");
    check_refused(&with_priority, "p, first, a, b, c", CasbinPart::Policy, "is no number");
}

#[test]
fn roles_in_a_circle_end() {
    let enforcer =
        CasbinEnforcer::compile(MODEL, "p, c, *, *\ng, a, b\ng, b, a\ng, b, c\ng, c, c\n").unwrap();
    assert!(enforcer.allows(["a", "/", "GET"]));
    assert!(!enforcer.allows(["d", "/", "GET"]));
}

fn status(settings: Value, request: &str) -> u16 {
    let bench = PluginBench::new();
    let plugin = bench.plugin("authz-casbin", settings);
    bench.run(&plugin, request).status
}

#[test]
fn the_field_names_the_user_and_others_are_anonymous() {
    let settings = || json!({"model": MODEL, "policy": POLICY, "username": "X-User"});
    for (request, expected) in [
        ("GET / HTTP/1.1", 200),
        ("GET /?a=b HTTP/1.1", 200),
        ("GET /a HTTP/1.1", 403),
        ("GET /a HTTP/1.1\nX-User: alice", 200),
        ("DELETE /a HTTP/1.1\nx-user: alice", 200),
        ("GET /a HTTP/1.1\nX-User: bob", 403),
        ("GET /a HTTP/1.1\nX-User: alice\nX-User: bob", 403),
    ] {
        assert_eq!(status(settings(), request), expected, "{request}");
    }
    let bench = PluginBench::new();
    let reply = bench.run(&bench.plugin("authz-casbin", settings()), "GET /a HTTP/1.1");
    assert_eq!(reply.body, "{\"message\":\"Access Denied\"}\n");
}

/// Files by path.
struct Files;

impl ObjectLookup for Files {
    fn proto(&self, _: &str) -> Option<std::sync::Arc<yumen_plugin::proto::ProtoDescriptors>> {
        None
    }

    fn upstream(&self, _: &str) -> Option<yumen_plugin::UpstreamSlot> {
        None
    }

    fn inline_upstream(
        &self,
        _: &str,
        _: yumen_config::resource::UpstreamSpec,
    ) -> Result<yumen_plugin::UpstreamSlot, yumen_config::schema::InvalidSettings> {
        Ok(yumen_plugin::UpstreamSlot::default())
    }

    fn read_file(&self, path: &str) -> Result<String, String> {
        match path {
            "/model" => Ok(MODEL.to_owned()),
            "/policy" => Ok(POLICY.to_owned()),
            _ => Err(format!("{path} cannot be read: not found")),
        }
    }
}

#[test]
fn model_and_policy_come_from_settings_files_or_metadata() {
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(Files));
    let build = |bench: &PluginBench, more: Value| {
        let mut settings = json!({"username": "X-User"});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        bench.build("authz-casbin", settings)
    };
    let files = build(&bench, json!({"model_path": "/model", "policy_path": "/policy"})).expect("built");
    assert_eq!(bench.run(&files, "GET / HTTP/1.1").status, 200);
    assert_eq!(bench.run(&files, "PUT / HTTP/1.1").status, 403);
    for (more, path, message) in [
        (json!({}), "model", "neither the settings nor the metadata"),
        (json!({"model": MODEL}), "model", "either model and policy"),
        (json!({"model": MODEL, "policy_path": "/policy"}), "model", "either model and policy"),
        (json!({"model_path": "/none", "policy_path": "/policy"}), "model_path", "/none cannot be read"),
        (json!({"model": "x", "policy": POLICY}), "model", "neither a section"),
        (json!({"model": MODEL, "policy": "p, a"}), "policy", "line 1 of the policy"),
        (json!({"model": MODEL, "policy": POLICY, "username": "a b"}), "username", "not a field name"),
    ] {
        let refused = build(&bench, more).err().expect(message);
        assert_eq!(refused.path, path);
        assert!(refused.message.contains(message), "{}", refused.message);
    }
    bench.metadata = Some(json!({"model": MODEL, "policy": POLICY}));
    let common = build(&bench, json!({})).expect("built");
    assert_eq!(bench.run(&common, "GET /a HTTP/1.1\nX-User: alice").status, 200);
    // Settings that are only validated name files that another node may have.
    bench.objects = None;
    let validated = build(&bench, json!({"model_path": "/none", "policy_path": "/none"})).expect("valid");
    assert_eq!(bench.run(&validated, "GET / HTTP/1.1").status, 403);
}
