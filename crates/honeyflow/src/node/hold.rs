//! Documents whose rows are gone without a word. A few of them are what a lost trigger leaves; a flood of them is a table
//! that was hidden, emptied or restored by mistake, and then the index is the last to know what was in it. They are kept
//! until someone confirms.

use honeyflow_runtime::Failure;
use honeyflow_store::{Admin, AdminReply, Store};

use super::reindex::{ask, misplaced};

/// So many are removed without asking.
const UNASKED_MAX: usize = 1000;
/// The task of an entity.
const HOLD: &str = "hold";

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Hold {
    #[default]
    None,
    Held,
    /// Someone has looked, and wants them gone.
    Confirmed,
}

impl Hold {
    fn word(self) -> &'static str {
        match self {
            Hold::None => "none",
            Hold::Held => "held",
            Hold::Confirmed => "confirmed",
        }
    }

    fn from_word(word: &str) -> Hold {
        [Hold::Held, Hold::Confirmed].into_iter().find(|hold| hold.word() == word).unwrap_or_default()
    }
}

/// Whether so many may be removed; if not, they are held from now on. A hold ends with what it held.
pub async fn may_remove(store: &dyn Store, entity: &str, documents: usize) -> Result<bool, Failure> {
    let before = of(store, entity).await?;
    let (goes, after) = judge(before, documents);
    if before != after {
        put(store, entity, after).await?;
    }
    Ok(goes)
}

fn judge(hold: Hold, documents: usize) -> (bool, Hold) {
    match hold {
        Hold::None | Hold::Held if documents > UNASKED_MAX => (false, Hold::Held),
        _ => (true, Hold::None),
    }
}

pub async fn of(store: &dyn Store, entity: &str) -> Result<Hold, Failure> {
    let AdminReply::Tasks(tasks) = ask(store, Admin::Tasks).await? else { return Err(misplaced()) };
    let found = tasks.iter().find(|task| task.noun == HOLD && task.name == entity);
    Ok(found.map_or(Hold::None, |task| Hold::from_word(&task.state)))
}

/// Entities that are held.
pub async fn held(store: &dyn Store) -> Result<Vec<String>, Failure> {
    let AdminReply::Tasks(tasks) = ask(store, Admin::Tasks).await? else { return Err(misplaced()) };
    let held = tasks.into_iter().filter(|task| task.noun == HOLD && task.state == Hold::Held.word());
    Ok(held.map(|task| task.name).collect())
}

/// What is held of the entity may be removed, once.
pub async fn confirm(store: &dyn Store, entity: &str) -> Result<(), Failure> {
    put(store, entity, Hold::Confirmed).await
}

async fn put(store: &dyn Store, entity: &str, hold: Hold) -> Result<(), Failure> {
    let (noun, name, state) = (HOLD.to_owned(), entity.to_owned(), hold.word().to_owned());
    ask(store, Admin::PutTask { noun, name, state }).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_38_a_flood_of_absent_keys_is_held_until_it_is_confirmed_once() {
        assert_eq!(judge(Hold::None, 1000), (true, Hold::None));
        assert_eq!(judge(Hold::None, 1001), (false, Hold::Held));
        assert_eq!(judge(Hold::Held, 1001), (false, Hold::Held), "asking again changes nothing");
        assert_eq!(judge(Hold::Held, 0), (true, Hold::None), "the rows are back");
        assert_eq!(judge(Hold::Confirmed, 1_000_000), (true, Hold::None));
        for hold in [Hold::None, Hold::Held, Hold::Confirmed] {
            assert_eq!(Hold::from_word(hold.word()), hold);
        }
    }
}
