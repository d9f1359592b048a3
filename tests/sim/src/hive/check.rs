//! Heals the hive and checks the invariants.

use honeyflow_event::Name;
use honeyflow_hive::{contract::View, member::Input};
use honeyflow_invariant::{Breach, hive};
use honeyflow_runtime::Moment;
use uuid::Uuid;

use super::{DUTY, EPOCH_MS, Happening, MILLI, Plan, SECOND, World};

/// The outcome of a seed.
#[derive(Debug)]
pub struct Outcome {
    pub plan: Plan,
    pub breaches: Vec<Breach>,
    pub trace: u64,
    pub simulated_ms: u64,
    /// The time from the heal until every lease was held.
    pub held_after_ms: Option<u64>,
    pub granted: u64,
    pub accepted: usize,
    pub refused: u64,
    pub buried: u64,
}

pub fn run(seed: u64) -> Outcome {
    run_plan(Plan::draw(seed))
}

pub fn run_plan(plan: Plan) -> Outcome {
    let mut world = World::new(plan.options.clone());
    for machine in 0..plan.options.nodes {
        let wait = world.random.below(2 * SECOND);
        world.after(wait, Happening::Restarts { machine });
    }
    for (at, fault) in &plan.faults {
        world.plan(*at, *fault);
    }
    world.until(plan.safety);
    let held_after_ms = world.heal();
    world.check_rest();
    let mut breaches = std::mem::take(&mut world.history.breaches);
    breaches.extend(world.judge());
    Outcome {
        plan,
        breaches,
        trace: world.trace,
        simulated_ms: world.now / MILLI,
        held_after_ms,
        granted: world.history.granted,
        accepted: world.history.accepted.len(),
        refused: world.history.refused,
        buried: world.history.buried,
    }
}

/// The content that a version identifies. Beats, times and successors change without a new version.
pub fn content(view: &View) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for node in &view.nodes {
        let _ = write!(text, "{} {} {}; ", node.id, node.ready, node.eligible);
    }
    for lease in view.leases.iter().filter(|lease| lease.epoch.0 > 0) {
        let _ = write!(text, "{} {} {:?}; ", lease.name, lease.epoch.0, lease.holder);
    }
    text
}

impl World {
    /// Ends all faults. Returns how long it took until all leases were held.
    pub fn heal(&mut self) -> Option<u64> {
        let healed_at = self.now;
        self.healed_at = Some(healed_at);
        self.down_until = 0;
        for node in &mut self.nodes {
            (node.cut_until, node.deaf_until) = (0, 0);
            node.paused_until = node.paused_until.min(healed_at);
        }
        for machine in 0..self.options.nodes {
            self.after(1, Happening::Restarts { machine });
        }
        // Nodes that had given up the duty try again.
        for who in 0..self.nodes.len() {
            self.nodes[who].sits_out_until = Moment::default();
            self.deliver(who, Input::Want(DUTY.into()));
        }
        let ttl = self.options.ttl_ms * MILLI;
        let troubled = self.lineages > 0 || self.restored || self.steps > 0;
        let limit = ttl * 2 + SECOND + if troubled { ttl } else { 0 };
        let mut held = None;
        while self.now < healed_at + limit + SECOND && held.is_none() {
            self.pass(20 * MILLI);
            if self.restored {
                self.after(0, Happening::Accepts);
            }
            if self.vacant().is_empty() {
                held = Some((self.now - healed_at) / MILLI);
            }
        }
        let vacant = self.vacant();
        let vacant: Vec<&str> = vacant.iter().map(String::as_str).collect();
        let after_ms = (self.now - healed_at) / MILLI;
        let breaches = hive::leases_are_held(&vacant, after_ms, limit / MILLI);
        self.history.breaches.extend(breaches);
        held
    }

    /// Waits until the shards are placed and all nodes know the count; after that no lease may get a new holder.
    pub fn check_rest(&mut self) {
        let ttl = self.options.ttl_ms * MILLI;
        self.pass(ttl * 4 + 30 * SECOND);
        let before = (self.history.granted, self.history.lost);
        self.pass(10 * SECOND);
        // After a restore that could not be detected, views may differ until something else happens.
        if before != (self.history.granted, self.history.lost) && !self.restored {
            let what = format!("terms went from {before:?} to {:?} in calm", (self.history.granted, self.history.lost));
            self.history.breaches.push(Breach::new("HV-92", what));
        }
        let mut vacant = self.vacant();
        // For the same reason a duty may move between nodes: it is held, though not at every instant.
        for _ in 0..if self.restored { 20 } else { 0 } {
            self.pass(100 * MILLI);
            let still = self.vacant();
            vacant.retain(|lease| still.contains(lease));
        }
        if !vacant.is_empty() {
            self.history.breaches.push(Breach::new("HI-5", format!("at rest no node holds {vacant:?}")));
        }
        let alive: Vec<usize> = (0..self.nodes.len()).filter(|who| self.nodes[*who].alive).collect();
        let shards = |who: usize| self.nodes[who].terms.keys().filter(|lease| lease.starts_with("shard/")).count();
        let counts: Vec<usize> = alive.iter().map(|who| shards(*who)).collect();
        let (least, most) = (counts.iter().min().copied(), counts.iter().max().copied());
        // A restore is detected by a lower version. If as many events have happened since, views differ and no node
        // notices.
        if most.unwrap_or(0) > least.unwrap_or(0) + 1 && !self.restored {
            self.history.breaches.push(Breach::new("HV-53", format!("shards lie {counts:?} at rest")));
        }
        let used = alive.iter().filter(|who| self.nodes[**who].is_used()).count() as u64;
        let known: Vec<(String, Option<u64>)> = alive
            .iter()
            .map(|who| (who.to_string(), self.nodes[*who].engaged.and_then(|engaged| engaged.count)))
            .collect();
        self.history.breaches.extend(hive::counts_are_true(&known, used));
    }

    pub fn judge(&mut self) -> Vec<Breach> {
        for who in 0..self.nodes.len() {
            let leases: Vec<Name> = self.nodes[who].terms.keys().cloned().collect();
            leases.iter().for_each(|lease| self.ends(who, lease));
        }
        let mut breaches = hive::accepted_epochs_never_fall(self.history.accepted.iter().map(|(_, accepted)| accepted));
        // A restore brings old rows back: leases that were minted later are minted again, under higher epochs.
        breaches.extend(hive::epochs_grow(&self.history.minted));
        if !self.restored {
            breaches.extend(hive::terms_do_not_overlap(&self.history.reigns));
        }
        breaches.extend(hive::versions_mean_one_content(&self.history.shown));
        breaches.extend(hive::versions_have_no_gap(&self.history.versions));
        if self.lineages == 0 && !self.restored {
            breaches.extend(hive::published_epochs_never_fall(&self.history.published));
        }
        breaches
    }

    pub fn check_trust(&mut self, who: usize, until: Moment) {
        let until = self.nodes[who].world(until);
        self.nodes[who].trusted_until = until;
        let Some(id) = self.nodes[who].member.node().filter(|_| self.steps == 0 && self.lineages == 0) else { return };
        let expires_ms = self.expires_ms(id);
        let expires = expires_ms.map(|expires_ms| (expires_ms.saturating_sub(EPOCH_MS)) * MILLI);
        let late = expires.and_then(|expires| hive::trust_ends_before_expiry(&who.to_string(), until, expires));
        if !self.restored {
            self.history.breaches.extend(late);
        }
    }

    fn expires_ms(&mut self, id: honeyflow_hive::NodeId) -> Option<u64> {
        let view = self.rows.apply(self.hive_ms(), honeyflow_hive::Request::View).ok()?;
        let honeyflow_hive::Reply::View(view) = view else { return None };
        view.nodes.iter().find(|node| node.id == id).map(|node| node.expires_ms)
    }

    pub fn check_unknown(&mut self, who: usize) {
        if let Some(engaged) = self.nodes[who].engaged {
            let (count, divisor) = (engaged.count, engaged.divisor);
            self.history.breaches.extend(hive::unknown_is_not_one(&who.to_string(), count, divisor, 16));
        }
    }

    /// Drops what was written within the last `lost_us` microseconds.
    pub fn lose_recent_writes(&mut self, lost_us: u64) {
        let kept = self.now.saturating_sub(lost_us);
        self.history.accepted.retain(|(at, _)| *at < kept.saturating_sub(100 * MILLI));
        self.rows = self.rows_before(lost_us);
        // A hive that starts empty is another one: its versions start again too.
        self.rows.set_next_origin(Uuid::from_u128(u128::from(self.now)));
        self.forget_events();
        self.beaten.retain(|_, (at, _)| *at < kept.saturating_sub(100 * MILLI));
    }

    /// Reads the store's events only from here on.
    fn forget_events(&mut self) {
        self.history.versions.clear();
        if let Ok(honeyflow_hive::Reply::View(view)) = self.rows.apply(self.hive_ms(), honeyflow_hive::Request::View) {
            self.events_read = view.head.version;
        }
    }
}
