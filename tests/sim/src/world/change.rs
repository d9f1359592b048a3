//! What runs may see of the changes that began them.

use honeyflow_engine::core::input::EvaluationItem;
use honeyflow_event::Changes;
use honeyflow_step::Item;

/// Returns what is wrong if a run of the workflow for inserts works with an event that inserts nothing. A run takes rows
/// that ask for it alone, so the newest one does, too.
pub fn not_asked_for(item: &Item) -> Option<String> {
    let event = &item.event;
    let asked = event.workflow.is_some() || (event.entity == item.entity && event.change == Changes::INSERT);
    (!asked).then(|| format!("event {} ({:?} of {}) began a run of {}", event.id, event.change, event.entity, item.key))
}

/// Returns what is wrong if an expression sees another key than its run's, or does not see which row began the run.
pub fn wrong_view(item: &EvaluationItem) -> Option<String> {
    let (view, shown) = (&item.event, item.event.as_json());
    let is_own = shown["entity"] == *item.run.entity && shown["key"] == *item.run.key;
    let by_edge = view.newest.entity != item.run.entity || view.newest.change.intersects(Changes::RELATED);
    let cause = &shown["cause"];
    let is_caused = if by_edge { cause["entity"].is_string() && *cause != shown["key"] } else { cause.is_null() };
    (!is_own || !is_caused).then(|| format!("the run of {} sees {shown}", item.run.key))
}
