//! Runs that people want ended, each by the node that works on its key. What was asked for is a row, and stays one until
//! the run is out of the way: a node that dies meanwhile finds the wish again, beside the run that begins anew.
//!
//! | asked for      | of that key there is     | then                                                    |
//! |----------------|--------------------------|---------------------------------------------------------|
//! | seen first     | no run, but events wait  | wait: a run will come of them                           |
//! | seen first     | neither                  | done: there is nothing to end                           |
//! | seen first     | a run                    | it is told to end                                       |
//! | under way      | that run, still          | wait                                                    |
//! | under way      | another run, or none     | done; what it was parked with is dropped, if so wished  |

use std::collections::BTreeMap;

use honeyflow_engine::{core::people::RunView, shell};
use honeyflow_event::shard;
use honeyflow_runtime::Failure;
use honeyflow_store::{
    Admin, AdminReply,
    admin::{ParkedFilter, ParkedRow, Task},
};

use super::{hive::Hives, reindex::ask, source::OpenSource};

/// A task `cancel` names `workflow/entity/key`.
pub const CANCEL: &str = "cancel";
pub const ASKED: &str = "asked";
/// The event is not to be kept either.
pub const ASKED_TO_DROP: &str = "asked to drop";
const DONE: &str = "done";

/// What it is parked with then.
const CODE: &str = "cancelled";
const PAGE: u32 = 100;

/// By source and name of the task.
#[derive(Default)]
pub struct Cancels(BTreeMap<(String, String), UnderWay>);

struct UnderWay {
    run: u64,
    /// Parked before, and none of our business.
    parked_before: Vec<i64>,
}

#[derive(PartialEq, Eq, Debug)]
enum Next {
    Tell { run: u64 },
    Wait,
    Done,
}

fn next(under_way: Option<u64>, runs: impl IntoIterator<Item = u64>, events_wait: bool) -> Next {
    let mut runs = runs.into_iter();
    match (under_way, runs.next()) {
        (Some(run), first) if first.into_iter().chain(runs).any(|other| other == run) => Next::Wait,
        (Some(_), _) => Next::Done,
        (None, Some(run)) => Next::Tell { run },
        (None, None) if events_wait => Next::Wait,
        (None, None) => Next::Done,
    }
}

impl Cancels {
    pub async fn see_to(
        &mut self,
        tasks: Vec<Task>,
        source: &OpenSource,
        engine: &shell::Handle,
        hives: &Hives,
    ) -> Result<(), Failure> {
        let shards = engine.status().sources.iter().find(|one| one.name == source.name).map_or(1, |one| one.shards);
        let shards = u16::try_from(shards).unwrap_or(1);
        let is_asked = |task: &Task| task.noun == CANCEL && (task.state == ASKED || task.state == ASKED_TO_DROP);
        for task in tasks.into_iter().filter(is_asked) {
            let place = (source.name.to_string(), task.name.clone());
            let mut parts = task.name.splitn(3, '/');
            if let (Some(workflow), Some(entity), Some(key)) = (parts.next(), parts.next(), parts.next()) {
                if !hives.holds(&source.name, shard::of("", entity, key, shards)) {
                    self.0.remove(&place);
                    continue;
                }
                let is_meant =
                    |run: &RunView| run.source == source.name && *run.workflow == *workflow && *run.entity == *entity;
                let runs = engine.runs(Some(key.to_owned()), usize::MAX).await;
                // One that nobody can go on with is no run of this node: it has no number.
                let runs = runs.iter().filter(|run| is_meant(run)).map(|run| run.number).filter(|number| *number > 0);
                let drops = task.state == ASKED_TO_DROP;
                let filter = ParkedFilter {
                    entity: Some(entity.into()),
                    key: Some(key.into()),
                    workflow: Some(workflow.into()),
                    code: Some(CODE.to_owned()),
                    ..ParkedFilter::default()
                };
                let events = Admin::Events { entity: entity.into(), key: key.into(), limit: 1 };
                let events = ask(&source.database.store, events).await?;
                let events_wait = matches!(&events, AdminReply::Events(events) if !events.is_empty());
                match next(self.0.get(&place).map(|under_way| under_way.run), runs, events_wait) {
                    Next::Tell { run } => {
                        let parked_before = if drops { parked(source, filter).await? } else { Vec::new() };
                        engine.cancel(workflow.into(), entity.into(), key.into()).await;
                        self.0.insert(place, UnderWay { run, parked_before });
                        continue;
                    }
                    Next::Wait => continue,
                    Next::Done if drops => {
                        let before = self.0.get(&place).map(|under_way| under_way.parked_before.clone());
                        // Whatever was parked before this node heard of the wish is kept: it may be another's.
                        if let Some(before) = before {
                            let ours = parked(source, filter).await?.into_iter().filter(|id| !before.contains(id));
                            for id in ours {
                                let filter = ParkedFilter { id: Some(id), ..ParkedFilter::default() };
                                ask(&source.database.store, Admin::DropParked(filter)).await?;
                            }
                        }
                    }
                    Next::Done => {}
                }
            }
            let done = Admin::PutTask { noun: task.noun, name: task.name, state: DONE.to_owned() };
            ask(&source.database.store, done).await?;
            self.0.remove(&place);
        }
        Ok(())
    }
}

async fn parked(source: &OpenSource, filter: ParkedFilter) -> Result<Vec<i64>, Failure> {
    let rows = Admin::Parked { filter, after: 0, limit: PAGE };
    match ask(&source.database.store, rows).await? {
        AdminReply::Parked(rows) => Ok(rows.iter().map(|row: &ParkedRow| row.id).collect()),
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WF-54, WF-81: a wish is done when its run is out of the way, and not before.
    #[test]
    fn wf_81_a_cancel_lasts_until_its_run_has_ended() {
        assert_eq!(next(None, [], false), Next::Done, "nothing to end");
        assert_eq!(next(None, [], true), Next::Wait, "the node has just begun");
        assert_eq!(next(None, [7], true), Next::Tell { run: 7 });
        assert_eq!(next(Some(7), [7], true), Next::Wait, "it is being ended");
        assert_eq!(next(Some(7), [], true), Next::Done, "what waits is for others");
        assert_eq!(next(Some(7), [8], true), Next::Done, "the next run of the key was not meant");
    }
}
