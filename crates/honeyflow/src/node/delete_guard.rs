//! The delete guard: holds back the deletion of many documents whose rows are gone without a delete event. A few such
//! documents are what a lost trigger leaves behind. A flood of them means that a table was hidden, emptied or restored
//! by mistake, and then the index is the last place with its content. They are kept until an operator confirms.

use honeyflow_runtime::Failure;
use honeyflow_store::{Admin, AdminReply, Store};

use super::reindex::{ask, misplaced};

/// Up to this number of documents is deleted without confirmation.
const UNASKED_MAX: usize = 1000;
/// The noun of the task; its name is the entity.
const TASK_NOUN: &str = "hold";

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum GuardState {
    #[default]
    None,
    Held,
    /// An operator has confirmed the deletion.
    Confirmed,
}

impl GuardState {
    fn word(self) -> &'static str {
        match self {
            GuardState::None => "none",
            GuardState::Held => "held",
            GuardState::Confirmed => "confirmed",
        }
    }

    fn from_word(word: &str) -> GuardState {
        [GuardState::Held, GuardState::Confirmed].into_iter().find(|state| state.word() == word).unwrap_or_default()
    }
}

/// Whether this number of documents may be deleted now. If not, they are held from now on. A hold ends when the
/// documents are deleted or their rows are back.
pub async fn may_remove(store: &dyn Store, entity: &str, documents: usize) -> Result<bool, Failure> {
    let before = guard_state(store, entity).await?;
    let (allowed, after) = decide(before, documents);
    if before != after {
        put(store, entity, after).await?;
    }
    Ok(allowed)
}

fn decide(state: GuardState, documents: usize) -> (bool, GuardState) {
    match state {
        GuardState::None | GuardState::Held if documents > UNASKED_MAX => (false, GuardState::Held),
        _ => (true, GuardState::None),
    }
}

pub async fn guard_state(store: &dyn Store, entity: &str) -> Result<GuardState, Failure> {
    let AdminReply::Tasks(tasks) = ask(store, Admin::Tasks).await? else { return Err(misplaced()) };
    let found = tasks.iter().find(|task| task.noun == TASK_NOUN && task.name == entity);
    Ok(found.map_or(GuardState::None, |task| GuardState::from_word(&task.state)))
}

/// The entities whose documents are held.
pub async fn held_entities(store: &dyn Store) -> Result<Vec<String>, Failure> {
    let AdminReply::Tasks(tasks) = ask(store, Admin::Tasks).await? else { return Err(misplaced()) };
    let held = tasks.into_iter().filter(|task| task.noun == TASK_NOUN && task.state == GuardState::Held.word());
    Ok(held.map(|task| task.name).collect())
}

/// Confirms that the held documents of the entity may be deleted, once.
pub async fn confirm(store: &dyn Store, entity: &str) -> Result<(), Failure> {
    put(store, entity, GuardState::Confirmed).await
}

async fn put(store: &dyn Store, entity: &str, state: GuardState) -> Result<(), Failure> {
    let (noun, name) = (TASK_NOUN.to_owned(), entity.to_owned());
    let state = state.word().to_owned();
    ask(store, Admin::PutTask { noun, name, state }).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_38_a_flood_of_absent_keys_is_held_until_it_is_confirmed_once() {
        assert_eq!(decide(GuardState::None, 1000), (true, GuardState::None));
        assert_eq!(decide(GuardState::None, 1001), (false, GuardState::Held));
        assert_eq!(decide(GuardState::Held, 1001), (false, GuardState::Held), "a second check changes nothing");
        assert_eq!(decide(GuardState::Held, 0), (true, GuardState::None), "the rows are back");
        assert_eq!(decide(GuardState::Confirmed, 1_000_000), (true, GuardState::None));
        for state in [GuardState::None, GuardState::Held, GuardState::Confirmed] {
            assert_eq!(GuardState::from_word(state.word()), state);
        }
    }
}
