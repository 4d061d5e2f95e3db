//! What answers where something that may guard cannot be had: a plugin that refuses.

use std::sync::Arc;

use yumen_plugin::{Exchange, Foreseen, Instance, Meta, Phases, Plugin, Reads, Response, Step};

/// Refuses every request it sees with 503 and these words.
pub(super) struct Refusal(pub(super) &'static str);

impl Plugin for Refusal {
    fn phases(&self) -> Phases {
        Phases::REWRITE
    }

    fn rewrite<'a>(&'a self, _ex: &'a mut Exchange<'_>) -> Step<'a> {
        Step::Respond(Response::error_msg(503, self.0))
    }

    fn foresee(&self, phase: Phases, ex: &mut Exchange<'_>) -> Foreseen {
        Foreseen::by_running(self, phase, ex)
    }
}

impl Refusal {
    /// What stands for a consumer's plugins where those of its group are not known. Its name is no plugin's, so
    /// no route has it and it runs as soon as the consumer is known.
    pub(super) fn of_group(origin: Arc<str>) -> Instance {
        let refusal = Refusal("the consumer group is not in force");
        Instance {
            phases: refusal.phases(),
            plugin: Arc::new(refusal),
            name: "consumer group",
            priority: i32::MAX,
            meta: Meta::default(),
            origin,
            is_auth: false,
            prefers_route: false,
            reads: Reads::default(),
        }
    }
}
