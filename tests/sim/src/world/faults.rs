//! The faults: crashes, pauses, cuts, outages; and operators who pause workflows and cancel runs. A fault counts only
//! when it has visibly hit something.

use honeyflow_engine::core::{Input, WorkerId};
use honeyflow_event::{Key, Stamp};
use honeyflow_hive::member;
use honeyflow_store::write::Pause;
use honeyflow_workflow::{Role, StepId};

use super::{World, queue::Happening};
use crate::{
    fault::{AGAIN, Fault},
    model_store::ModelStore,
    node::{Incarnation, LifeState},
    options::{MILLI, SECOND},
    workload::store_of,
};

impl World {
    pub(super) fn apply_fault(&mut self, fault: Fault) {
        if self.healed {
            return;
        }
        let hit = self.try_fault(fault);
        if self.watched.is_some() {
            eprintln!("{:>12} {fault:?} strikes, hit: {hit}", self.now);
        }
        if !hit {
            self.after(AGAIN, Happening::Strikes(fault));
            return;
        }
        // For these faults it shows only at their end whether they hit.
        self.stats.faults += u64::from(!matches!(fault, Fault::Pause | Fault::Broken));
    }

    /// Applies the fault. Returns false if there is no victim now.
    fn try_fault(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::StoreOutage => {
                let store = self.below(self.stores.len());
                self.down_until[store] = self.now + self.random.between(100 * MILLI, 4 * SECOND);
                true
            }
            Fault::SinkOutage => {
                let sink = self.below(self.sinks.len());
                self.sinks[sink].down_until = self.now + self.random.between(SECOND, 6 * SECOND);
                true
            }
            Fault::SinkAhead => self.sink_gets_ahead(),
            Fault::Migration => {
                self.migrating = true;
                let wait = self.random.between(SECOND / 2, 3 * SECOND);
                self.after(wait, Happening::Migrated);
                true
            }
            Fault::Broken => self.step_breaks(),
            Fault::Hold => self.person_pauses(),
            Fault::Cancel => self.person_cancels(),
            _ => self.try_node_fault(fault),
        }
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.random.below(count as u64)).unwrap_or(0)
    }

    fn try_node_fault(&mut self, fault: Fault) -> bool {
        let ttl = self.options.ttl_ms * MILLI;
        let Some(who) = self.victim(fault) else { return false };
        let node = self.incarnations[who].node;
        match fault {
            Fault::Crash => {
                self.kill(who);
                let wait = self.random.between(100 * MILLI, ttl * 2);
                self.after(wait, Happening::Restarts { node });
            }
            Fault::Pause => {
                // The pause is long enough for other nodes to notice and take over. It begins with the next write.
                let pause = ttl * 3 + self.random.between(SECOND, 3 * SECOND);
                self.incarnations[who].pauses_before_write = Some(pause);
            }
            Fault::Double => {
                self.incarnations[who].cut_off_until = self.now + self.random.between(ttl / 2, ttl * 3);
                self.after(MILLI, Happening::Restarts { node });
            }
            Fault::CutOff => {
                self.incarnations[who].cut_off_until = self.now + self.random.between(100 * MILLI, ttl * 2);
            }
            Fault::Drain => {
                self.incarnations[who].life = LifeState::Draining;
                self.deliver_to_core(who, Input::Drain);
                (0..self.stores.len()).for_each(|store| self.send_to_member(who, store, member::Input::Drain));
                // If the old incarnation does not end by itself, it is killed.
                self.after(5 * SECOND, Happening::Kills { who });
                self.after(6 * SECOND, Happening::Restarts { node });
            }
            Fault::WorkerDies => {
                let workers: Vec<WorkerId> = self.incarnations[who].workers.keys().copied().collect();
                let worker = *self.random.pick(&workers);
                self.worker_dies(who, worker);
            }
            _ => self.incarnations[who].workers.values_mut().take(1).for_each(|worker| worker.hangs = true),
        }
        true
    }

    /// Picks a running incarnation that holds a lease; for a pause, one with a write about to reach a sink.
    fn victim(&mut self, fault: Fault) -> Option<usize> {
        let now = self.now;
        let fits =
            |one: &Incarnation| one.life == LifeState::Running && !one.leases.is_empty() && one.paused_until <= now;
        let mut found: Vec<usize> = (0..self.incarnations.len()).filter(|who| fits(&self.incarnations[*who])).collect();
        match fault {
            Fault::Pause => {
                let fits = |one: &Incarnation| one.pauses_before_write.is_none() && one.cut_off_until <= now;
                found.retain(|who| self.has_peer(*who) && fits(&self.incarnations[*who]));
            }
            Fault::WorkerDies | Fault::WorkerHangs => found.retain(|who| !self.incarnations[*who].workers.is_empty()),
            _ => {}
        }
        (!found.is_empty()).then(|| *self.random.pick(&found))
    }

    /// Whether another node could take over.
    pub(super) fn has_peer(&self, who: usize) -> bool {
        self.incarnations.iter().enumerate().any(|(other, one)| {
            other != who
                && one.life == LifeState::Running
                && one.paused_until <= self.now
                && one.cut_off_until <= self.now
        })
    }

    /// Ends a pause. It does not count if no other node took over, or if nothing can be sent after it.
    pub(super) fn end_pause(&mut self, who: usize, since: usize) {
        let number = self.incarnations[who].number;
        let noticed = self.history.held[since..].iter().any(|held| held.holder != number);
        if noticed && self.down_until.iter().all(|until| *until <= self.now) {
            self.stats.faults += 1;
        } else {
            self.after(AGAIN, Happening::Strikes(Fault::Pause));
        }
    }

    pub(super) fn migrated(&mut self) {
        if std::mem::take(&mut self.migrating) {
            self.stores[0].schema_version += 1;
        }
    }

    /// Writes to a sink under a future epoch; then the row changes, and the change must reach the sink.
    fn sink_gets_ahead(&mut self) -> bool {
        let number = self.below(self.sinks.len());
        let Some(shape) = self.shapes.workflows.iter().find(|shape| shape.sinks.values().any(|sink| *sink == number))
        else {
            return false;
        };
        let keys: Vec<Key> = self.sinks[number].held.keys().cloned().collect();
        if keys.is_empty() || matches!(&*shape.entity, "msg" | "note") {
            return false;
        }
        let place = (shape.entity.clone(), self.random.pick(&keys).clone());
        let ahead = ModelStore::hive_ms(self.now) + self.random.between(1, 20_000);
        let Some(transaction) = self.application.touch(&mut self.stores, &place) else { return false };
        let stamp = Stamp::new(honeyflow_event::Epoch(ahead), 7);
        let body = Some(std::sync::Arc::new(serde_json::json!("from another life")));
        let written = self.sinks[number].write(&place.1, stamp, &body, (self.now, self.stats.happenings));
        self.after(1, Happening::Commits(transaction));
        written.is_ok()
    }

    /// Breaks one step of one workflow until it is repaired.
    fn step_breaks(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let workflow = self.below(self.shapes.workflows.len());
        let graph = &self.shapes.workflows[workflow].graph;
        let executed = |step: &StepId| !matches!(graph[*step].role, Role::Sleep | Role::Emit | Role::Wait);
        let steps: Vec<StepId> = graph.ids().filter(executed).collect();
        let step = *self.random.pick(&steps);
        self.broken = Some(((workflow, step), self.stats.fatals));
        let wait = self.random.between(SECOND, 4 * SECOND);
        self.after(wait, Happening::Mended);
        true
    }

    pub(super) fn repair_step(&mut self) {
        let Some((_, before)) = self.broken.take() else { return };
        for store in &mut self.stores {
            store.schema_version += 1;
        }
        if self.stats.fatals > before {
            self.stats.faults += 1;
        } else {
            self.after(AGAIN, Happening::Strikes(Fault::Broken));
        }
    }

    fn person_pauses(&mut self) -> bool {
        let workflow = self.below(self.shapes.workflows.len());
        let name = self.shapes.plan.workflows[workflow].name.to_string();
        let store = &mut self.stores[store_of(&self.shapes.workflows[workflow].entity)];
        if store.paused.iter().any(|pause| pause.name == name) {
            return false;
        }
        let since_ms = ModelStore::clock_ms(self.now);
        store.paused.push(Pause { noun: "workflow".to_owned(), name, why: "to look at it".to_owned(), since_ms });
        let wait = self.random.between(2 * SECOND, 6 * SECOND);
        self.after(wait, Happening::Resumes { workflow });
        true
    }

    pub(super) fn resume_workflow(&mut self, workflow: usize) {
        let name = &self.shapes.plan.workflows[workflow].name;
        self.stores.iter_mut().for_each(|store| store.paused.retain(|pause| *pause.name != **name));
    }

    /// Cancels the run of some key, in any state.
    fn person_cancels(&mut self) -> bool {
        let can_hear = |who: &usize| self.incarnations[*who].is_alive() && self.deferred(*who).is_none();
        let found: Vec<usize> = (0..self.incarnations.len()).filter(can_hear).collect();
        if found.is_empty() {
            return false;
        }
        let who = *self.random.pick(&found);
        let runs = self.incarnations[who].core.runs(None, 20);
        let open: Vec<_> = runs.into_iter().filter(|run| run.waits_for != "settling").collect();
        if open.is_empty() {
            return false;
        }
        let run = self.random.pick(&open).clone();
        let key: Key = run.key.as_str().into();
        self.watch(&key, || format!("incarnation {who} is told to cancel {}", run.workflow));
        self.stats.cancelled += 1;
        self.history.cancelled.insert((run.entity.clone(), key.clone(), run.workflow.clone()));
        self.deliver_to_core(who, Input::Cancel { workflow: run.workflow, entity: run.entity, key });
        true
    }
}
