use yumen_base::Problem;
use yumen_config::Kind;

use super::ProblemLedger;
use crate::compile::names::ObjectName;

#[test]
fn steps_replace_only_their_own_problems() {
    let mut ledger = ProblemLedger::default();
    let name = ObjectName::new(Kind::Routes, "a");
    let problem = |message: &str| vec![Problem::error("routes/a", "", message)];
    ledger.set_linking(&name, problem("link"));
    ledger.set_staging(&name, problem("stage"));
    let messages =
        |ledger: &ProblemLedger| -> Vec<String> { ledger.of(&name).map(|one| one.message.clone()).collect() };
    assert_eq!(messages(&ledger), ["stage", "link"]);
    ledger.set_staging(&name, Vec::new());
    assert_eq!(messages(&ledger), ["link"]);
    ledger.remove(&name);
    assert_eq!(ledger.objects().count(), 0);
}
