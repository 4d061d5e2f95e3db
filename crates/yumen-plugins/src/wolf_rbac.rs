//! `wolf-rbac`: authenticates consumers by tokens of a wolf server, which decides about each request.
//!
//! Each consumer has a server of its own. The public APIs of the plugin, such as the login, are in [`api`].

pub(crate) mod api;
mod server;
mod token;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, ConsumerAuth, ConsumerIdentity, ConsumerIndex, DryRunResult, Exchange, LocalResponse,
    PhaseSet, Plugin, PluginBuildContext, PluginFactory, Step, Var,
};

use server::{WolfServer, WolfVerdict};
use token::RbacToken;

#[cfg(test)]
mod tests;

const NAME: &str = "wolf-rbac";
/// Ends of the field names with the user, behind the prefix of the consumer.
const USER_FIELDS: [&str; 3] = ["UserId", "Username", "Nickname"];

/// Settings of `wolf-rbac`. Those of a route have no effect: the consumer has the server.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
pub(crate) struct WolfRbacSettings {
    /// Id of the application at the wolf server. Tokens name it, so it is unique over all consumers.
    #[serde(default = "appid")]
    appid: String,
    /// URL of the wolf server.
    #[serde(default = "server")]
    server: String,
    /// Begin of the names of the fields with the user: `X-UserId`, `X-Username`, `X-Nickname`.
    #[serde(default = "header_prefix")]
    header_prefix: String,
    /// Whether the certificate of the wolf server is verified.
    #[serde(default)]
    ssl_verify: bool,
}

fn appid() -> String {
    "unset".to_owned()
}

fn server() -> String {
    "http://127.0.0.1:12180".to_owned()
}

fn header_prefix() -> String {
    "X-".to_owned()
}

/// The application of a consumer.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WolfCredential {
    #[serde(flatten)]
    settings: WolfRbacSettings,
    /// Set when the consumer is compiled.
    #[serde(skip)]
    server: Option<WolfServer>,
}

/// The plugin of a route.
pub(crate) struct WolfRbac {
    path: Var,
    method: Var,
}

impl PluginFactory for WolfRbac {
    const NAME: &'static str = NAME;
    const PRIORITY: i32 = 2555;
    const ROLE: AccessRole = AccessRole::Authentication;
    type Config = WolfRbacSettings;

    fn build(config: WolfRbacSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let unset = WolfRbacSettings {
            appid: appid(),
            server: server(),
            header_prefix: header_prefix(),
            ssl_verify: false,
        };
        if config != unset {
            let message = "settings of a route have no effect: the token of a request names the consumer";
            setup.warn("", message, "move them to the consumer");
        }
        Ok(WolfRbac { path: Var::parse("uri"), method: Var::parse("request_method") })
    }
}

impl ConsumerAuth for WolfRbac {
    type Consumer = WolfCredential;
    const KEY_FIELD: &'static str = "appid";

    fn key(consumer: &WolfCredential) -> &str {
        &consumer.settings.appid
    }

    fn user_fields(consumer: &WolfCredential) -> &[String] {
        consumer.server.as_ref().map_or(&[], |server| &server.user_fields)
    }

    fn complete(
        consumer: &mut WolfCredential,
        setup: &PluginBuildContext<'_>,
    ) -> Result<(), InvalidSettings> {
        consumer.server = Some(WolfServer::build(&consumer.settings, setup)?);
        Ok(())
    }
}

/// A request with the consumer whose server decides.
struct WolfQuestion<'s> {
    identity: &'s ConsumerIdentity,
    server: &'s WolfServer,
    token: RbacToken,
}

/// The consumer with this application, and its server.
fn application<'s>(ex: &Exchange<'s>, appid: &str) -> Option<(&'s ConsumerIdentity, &'s WolfServer)> {
    let consumers = ex.consumers;
    let identity = consumers.find(NAME, appid.as_bytes())?;
    let server = identity.auth.downcast_ref::<WolfCredential>()?.server.as_ref()?;
    Some((identity, server))
}

impl WolfRbac {
    fn question<'s>(&self, ex: &Exchange<'s>) -> Result<WolfQuestion<'s>, LocalResponse> {
        let token = RbacToken::of_request(&ex.request)?;
        let (identity, server) = application(ex, &token.appid)
            .ok_or_else(|| LocalResponse::message(401, "Invalid appid in rbac token"))?;
        Ok(WolfQuestion { identity, server, token })
    }

    async fn wait<'a, 's>(&self, ex: &mut Exchange<'s>, question: WolfQuestion<'s>) -> Step<'a> {
        let WolfQuestion { identity, server, token } = question;
        let path = self.path.get(ex).unwrap_or_default().into_owned();
        let method = self.method.get(ex).unwrap_or_default().into_owned();
        let verdict = server.decide(ex, &token, &path, &method).await;
        // Those of other consumers too: the upstream knows their users by other names.
        let consumers = ex.consumers;
        ex.request.fields.remove_all_equivalent(&consumers.vouched_fields(NAME));
        let user = UserTexts::of(verdict.user());
        match verdict {
            WolfVerdict::Allowed(_) => {
                for (name, text) in user.fields(server) {
                    ex.request.fields.set(name, text.as_bytes());
                    ex.response.fields.set(name, text.as_bytes());
                }
                ex.identify_as(identity);
                Step::Continue
            }
            WolfVerdict::Refused { status, reason, .. } => {
                let mut body = serde_json::Map::new();
                let members =
                    [("message", &reason), ("username", &user.username), ("nickname", &user.nickname)];
                for (name, text) in members {
                    if let Some(text) = text {
                        body.insert(name.to_owned(), Value::String(text.clone()));
                    }
                }
                let mut refusal = LocalResponse::json(status, &Value::Object(body));
                refusal.is_message = true;
                for (name, text) in user.fields(server) {
                    refusal = refusal.field(name, text);
                }
                Step::Respond(refusal)
            }
        }
    }
}

/// The members of a user that requests and responses carry.
#[derive(Default)]
struct UserTexts {
    id: Option<String>,
    username: Option<String>,
    nickname: Option<String>,
}

impl UserTexts {
    fn of(user: Option<&Value>) -> UserTexts {
        let text = |member: &str| match user?.get(member)? {
            // A control character would end the field.
            Value::String(text) => Some(text.clone()).filter(|text| !text.chars().any(char::is_control)),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let username = text("username");
        UserTexts { id: text("id"), nickname: text("nickname").or_else(|| username.clone()), username }
    }

    /// Names and values of the fields. The nickname is percent-encoded, since it may have any character.
    fn fields<'s>(&self, server: &'s WolfServer) -> impl Iterator<Item = (&'s str, String)> {
        let nickname = self.nickname.as_ref().map(|nickname| server::escaped(nickname.as_bytes()));
        let texts = [self.id.clone(), self.username.clone(), nickname];
        server.user_fields.iter().zip(texts).filter_map(|(name, text)| Some((name.as_str(), text?)))
    }
}

impl Plugin for WolfRbac {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn vouched_fields<'s>(&'s self, consumers: &'s ConsumerIndex) -> Vec<&'s str> {
        consumers.vouched_fields(NAME)
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        match self.question(ex) {
            Ok(question) => Step::Wait(Box::pin(self.wait(ex, question))),
            Err(refusal) => Step::Respond(refusal),
        }
    }

    fn dry_run(&self, _: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        match self.question(ex) {
            Ok(question) => DryRunResult::Note(format!("depends on {}", question.server.describe()).into()),
            Err(refusal) => DryRunResult::Respond(refusal),
        }
    }
}
