//! Pages of AI plugins, functions and plugin runners. None of these plugins runs here.

use super::check_plugins;

#[test]
fn routes_of_the_ai_pages_are_accepted() {
    check_plugins(&[
        (
            "ai-proxy",
            r#"{"provider":"openai","auth":{"header":{"Authorization":"Bearer a"}},"options":{"model":"m","max_tokens":512,"temperature":1.0},"override":{"endpoint":"https://e"},"logging":{"summaries":true}}"#,
        ),
        (
            "ai-proxy-multi",
            r#"{"fallback_strategy":["rate_limiting"],"balancer":{"algorithm":"chash","hash_on":"header","key":"x"},"instances":[{"name":"a","provider":"openai","weight":8,"priority":1,"auth":{"header":{"Authorization":"Bearer a"}},"options":{"model":"m"},"checks":{"active":{"http_path":"/h"}}}]}"#,
        ),
        (
            "ai-rate-limiting",
            r#"{"limit":300,"time_window":30,"limit_strategy":"prompt_tokens","policy":"redis","redis_host":"127.0.0.1","instances":[{"name":"a","limit":10,"time_window":60}],"rejected_code":429}"#,
        ),
        (
            "ai-prompt-decorator",
            r#"{"prepend":[{"role":"system","content":"a"}],"append":[{"role":"user","content":"b"}]}"#,
        ),
        (
            "ai-prompt-guard",
            r#"{"allow_patterns":["a"],"deny_patterns":["b"],"match_all_roles":true,"match_all_conversation_history":true}"#,
        ),
        (
            "ai-prompt-template",
            r#"{"templates":[{"name":"t","template":{"model":"m","messages":[{"role":"user","content":"{{p}}"}]}}]}"#,
        ),
        (
            "ai-request-rewrite",
            r#"{"provider":"openai","auth":{"header":{"Authorization":"Bearer a"}},"options":{"model":"m"},"prompt":"p"}"#,
        ),
        (
            "ai-rag",
            r#"{"embeddings_provider":{"azure_openai":{"endpoint":"e","api_key":"k"}},"vector_search_provider":{"azure_ai_search":{"endpoint":"e","api_key":"k"}}}"#,
        ),
        (
            "ai-cache",
            r#"{"redis_host":"127.0.0.1","layers":["exact","semantic"],"bypass_on":[{"header":"X-By","equals":"1"}],"semantic":{"similarity_threshold":0.9}}"#,
        ),
        (
            "ai-lakera-guard",
            r#"{"api_key":"k","project_id":"p","action":"block","direction":"both","reveal_failure_categories":true}"#,
        ),
        (
            "ai-aws-content-moderation",
            r#"{"comprehend":{"access_key_id":"a","secret_access_key":"s","region":"us-east-1"},"moderation_categories":{"PROFANITY":0.1},"moderation_threshold":0.2,"deny_code":400}"#,
        ),
        (
            "ai-aliyun-content-moderation",
            r#"{"endpoint":"e","region_id":"r","access_key_id":"a","access_key_secret":"s","deny_code":400,"deny_message":"no","risk_level_bar":"high"}"#,
        ),
        ("mcp-bridge", r#"{"base_uri":"/mcp","command":"npx","args":["-y","server"]}"#),
    ]);
}

#[test]
fn routes_of_the_serverless_pages_are_accepted() {
    check_plugins(&[
        ("serverless-pre-function", r#"{"phase":"rewrite","functions":["return function() end"]}"#),
        ("serverless-post-function", r#"{"phase":"rewrite","functions":["return function(conf, ctx) end"]}"#),
        ("ext-plugin-pre-req", r#"{"conf":[{"name":"a","value":"{}"}]}"#),
        ("ext-plugin-post-req", r#"{"conf":[{"name":"a","value":"{}"}],"allow_degradation":true}"#),
        ("ext-plugin-post-resp", r#"{"conf":[{"name":"a","value":"{}"}]}"#),
        (
            "aws-lambda",
            r#"{"function_uri":"https://f.lambda-url.on.aws/","authorization":{"apikey":"k","iam":{"accesskey":"a","secretkey":"s","aws_region":"us-west-2","service":"lambda"}},"ssl_verify":false}"#,
        ),
        (
            "azure-functions",
            r#"{"function_uri":"http://a.azurewebsites.net/api/t","authorization":{"apikey":"k"}}"#,
        ),
        (
            "openfunction",
            r#"{"function_uri":"http://127.0.0.1:3233/f","authorization":{"service_token":"t:t"}}"#,
        ),
        (
            "openwhisk",
            r#"{"api_host":"http://127.0.0.1:3233","service_token":"a:b","namespace":"guest","action":"test"}"#,
        ),
        ("inspect", "{}"),
        ("node-status", "{}"),
        ("server-info", "{}"),
        ("batch-requests", "{}"),
    ]);
}
