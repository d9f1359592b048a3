//! Cancels runs on request of an operator. The node that owns the key carries the request out. The request is a row
//! that stays until the run has ended: if the node dies in between, the next owner finds the row again, together with
//! the run, which starts again.
//!
//! | request        | runs of that key         | action                                                  |
//! |----------------|--------------------------|---------------------------------------------------------|
//! | new            | no run, but events wait  | wait: they will start a run                             |
//! | new            | neither                  | done: there is nothing to cancel                        |
//! | new            | a run                    | cancel the run                                          |
//! | in progress    | that run, still          | wait                                                    |
//! | in progress    | another run, or none     | done; drop the parked event if the operator asked for it |

use std::collections::BTreeMap;

use honeyflow_engine::{core::run_view::RunView, shell};
use honeyflow_event::shard;
use honeyflow_runtime::Failure;
use honeyflow_store::{
    Admin, AdminReply,
    admin::{ParkedFilter, ParkedRow, Task},
};

use super::{hive::Hives, reindex::ask, source::OpenSource};

/// The noun of the task; its name is `workflow/entity/key`.
pub const CANCEL: &str = "cancel";
pub const ASKED: &str = "asked";
/// The operator wants the event dropped, too.
pub const ASKED_TO_DROP: &str = "asked to drop";
const DONE: &str = "done";

/// The code with which the event of a cancelled run is parked.
const CODE: &str = "cancelled";
const PAGE: u32 = 100;

/// The cancellations in progress, by source and name of the task.
#[derive(Default)]
pub struct Cancels(BTreeMap<(String, String), Cancellation>);

struct Cancellation {
    run: u64,
    /// Events that were already parked before this cancellation; they are not dropped.
    parked_before: Vec<i64>,
}

#[derive(PartialEq, Eq, Debug)]
enum Decision {
    Cancel { run: u64 },
    Wait,
    Done,
}

fn decide(in_progress: Option<u64>, runs: impl IntoIterator<Item = u64>, events_wait: bool) -> Decision {
    let mut runs = runs.into_iter();
    match (in_progress, runs.next()) {
        (Some(run), first) if first.into_iter().chain(runs).any(|other| other == run) => Decision::Wait,
        (Some(_), _) => Decision::Done,
        (None, Some(run)) => Decision::Cancel { run },
        (None, None) if events_wait => Decision::Wait,
        (None, None) => Decision::Done,
    }
}

impl Cancels {
    pub async fn carry_out(
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
                if !hives.holds(&source.name, shard::compute("", entity, key, shards)) {
                    self.0.remove(&place);
                    continue;
                }
                let is_meant =
                    |run: &RunView| run.source == source.name && *run.workflow == *workflow && *run.entity == *entity;
                let runs = engine.runs(Some(key.to_owned()), usize::MAX).await;
                // A stranded run cannot continue on this node, because its definition version cannot be used; it has no
                // number.
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
                match decide(self.0.get(&place).map(|in_progress| in_progress.run), runs, events_wait) {
                    Decision::Cancel { run } => {
                        let parked_before = if drops { parked(source, filter).await? } else { Vec::new() };
                        engine.cancel(workflow.into(), entity.into(), key.into()).await;
                        self.0.insert(place, Cancellation { run, parked_before });
                        continue;
                    }
                    Decision::Wait => continue,
                    Decision::Done if drops => {
                        let before = self.0.get(&place).map(|in_progress| in_progress.parked_before.clone());
                        // Events that were parked before this node saw the request are kept: they may belong to another
                        // cancellation.
                        if let Some(before) = before {
                            let ours = parked(source, filter).await?.into_iter().filter(|id| !before.contains(id));
                            for id in ours {
                                let filter = ParkedFilter { id: Some(id), ..ParkedFilter::default() };
                                ask(&source.database.store, Admin::DropParked(filter)).await?;
                            }
                        }
                    }
                    Decision::Done => {}
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

    /// WF-54, WF-81: a request is done when its run has ended, and not before.
    #[test]
    fn wf_81_a_cancel_lasts_until_its_run_has_ended() {
        assert_eq!(decide(None, [], false), Decision::Done, "nothing to cancel");
        assert_eq!(decide(None, [], true), Decision::Wait, "the waiting events will start a run");
        assert_eq!(decide(None, [7], true), Decision::Cancel { run: 7 });
        assert_eq!(decide(Some(7), [7], true), Decision::Wait, "the run is being cancelled");
        assert_eq!(decide(Some(7), [], true), Decision::Done, "waiting events belong to later runs");
        assert_eq!(decide(Some(7), [8], true), Decision::Done, "the next run of the key was not meant");
    }
}
