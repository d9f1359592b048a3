//! Time: one queue of future events, ordered by time and then by creation.

use std::collections::BTreeMap;

use honeyflow_engine::core::{BatchId, Input, WorkerId, input::Work};
use honeyflow_hive::{contract, member};
use honeyflow_runtime::Failure;
use honeyflow_store::Request;

use super::{World, database::CallEnd, database::StoreCall, workers::Answer};
use crate::{fault::Fault, workload::Transaction};

pub(super) enum Happening {
    Tick {
        who: usize,
    },
    /// A request arrives at the database; the answer takes `back` to return.
    HiveArrives {
        who: usize,
        store: usize,
        call: u64,
        request: contract::Request,
        ends: CallEnd,
        back: u64,
    },
    HiveAnswers {
        who: usize,
        store: usize,
        call: u64,
        result: Result<contract::Reply, Failure>,
    },
    StoreArrives {
        who: usize,
        asked: StoreCall,
        request: Request,
        ends: CallEnd,
        back: u64,
    },
    Hears {
        who: usize,
        input: Input,
    },
    /// The core sends an input to the member.
    Tells {
        who: usize,
        store: usize,
        input: member::Input,
    },
    Works {
        who: usize,
        worker: WorkerId,
        batch: BatchId,
        work: Work,
        answer: Answer,
    },
    NewWorker {
        who: usize,
    },
    Begins,
    Commits(Transaction),
    Strikes(Fault),
    Restarts {
        node: usize,
    },
    Migrated,
    /// The broken step works again.
    Mended,
    /// A node reads the pauses that operators have requested.
    Looks {
        who: usize,
    },
    /// A paused workflow continues.
    Resumes {
        workflow: usize,
    },
    Kills {
        who: usize,
    },
    /// A pause is over; `since` is the number of grants before it.
    Wakes {
        who: usize,
        since: usize,
    },
}

#[derive(Default)]
pub(super) struct Queue {
    waiting: BTreeMap<(u64, u64), Happening>,
    number: u64,
}

impl World {
    pub(super) fn after(&mut self, wait: u64, happening: Happening) {
        self.queue.number += 1;
        self.queue.waiting.insert((self.now + wait, self.queue.number), happening);
    }

    pub(super) fn until(&mut self, end: u64) {
        while let Some(entry) = self.queue.waiting.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, number), happening) = entry.remove_entry();
            self.now = self.now.max(at);
            self.stats.happenings += 1;
            for store in &mut self.stores {
                store.journal.at = self.stats.happenings;
            }
            self.note(at ^ number.rotate_left(20) ^ (kind(&happening) << 56));
            self.happen(happening);
        }
        self.now = self.now.max(end);
    }

    /// Adds a value to the hash of the history.
    pub(super) fn note(&mut self, value: u64) {
        self.trace = (self.trace.rotate_left(5) ^ value).wrapping_mul(0x517C_C1B7_2722_0A95);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Tick { who } => self.tick(who),
            Happening::HiveArrives { who, store, call, request, ends, back } => {
                let result = self.at_hive(who, store, request, ends);
                self.after(back, Happening::HiveAnswers { who, store, call, result });
            }
            Happening::HiveAnswers { who, store, call, result } => {
                if let Some(wait) = self.deferred(who) {
                    self.after(wait, Happening::HiveAnswers { who, store, call, result });
                } else if self.incarnations[who].is_alive() {
                    self.deliver_to_member(who, store, member::Input::Answer { call, result });
                }
            }
            Happening::StoreArrives { who, asked, request, ends, back } => {
                self.store_arrives(who, asked, request, ends, back);
            }
            Happening::Hears { who, input } => {
                if let Some(wait) = self.deferred(who) {
                    self.after(wait, Happening::Hears { who, input });
                } else if self.incarnations[who].is_alive() {
                    self.deliver_to_core(who, input);
                }
            }
            Happening::Tells { who, store, input } => {
                if let Some(wait) = self.deferred(who) {
                    self.after(wait, Happening::Tells { who, store, input });
                } else if self.incarnations[who].is_alive() {
                    self.deliver_to_member(who, store, input);
                }
            }
            Happening::Works { who, worker, batch, work, answer } => self.works(who, worker, batch, work, answer),
            Happening::NewWorker { who } => self.new_worker(who),
            Happening::Begins => self.begin_transactions(),
            Happening::Commits(transaction) => self.commit_transaction(transaction),
            Happening::Strikes(fault) => self.apply_fault(fault),
            Happening::Restarts { node } => self.start(node),
            Happening::Migrated => self.migrated(),
            Happening::Mended => self.repair_step(),
            Happening::Looks { who } => self.report_pauses(who),
            Happening::Resumes { workflow } => self.resume_workflow(workflow),
            Happening::Kills { who } => self.kill(who),
            Happening::Wakes { who, since } => self.end_pause(who, since),
        }
    }

    /// How long a paused node still receives nothing.
    pub(super) fn deferred(&self, who: usize) -> Option<u64> {
        self.incarnations[who].paused_until.checked_sub(self.now).filter(|wait| *wait > 0)
    }
}

fn kind(happening: &Happening) -> u64 {
    match happening {
        Happening::Tick { .. } => 1,
        Happening::HiveArrives { .. } => 2,
        Happening::HiveAnswers { .. } => 3,
        Happening::StoreArrives { .. } => 4,
        Happening::Hears { .. } => 5,
        Happening::Works { .. } => 6,
        Happening::NewWorker { .. } => 7,
        Happening::Begins => 8,
        Happening::Commits(_) => 9,
        Happening::Strikes(_) => 10,
        Happening::Restarts { .. } => 11,
        Happening::Migrated => 12,
        Happening::Kills { .. } => 13,
        Happening::Tells { .. } => 14,
        Happening::Wakes { .. } => 15,
        Happening::Mended => 16,
        Happening::Looks { .. } => 17,
        Happening::Resumes { .. } => 18,
    }
}
