//! The heartbeat thread: it owns the member, carries out its effects, and passes the results back to it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use honeyflow_runtime::{Failure, Moment};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{OnUnstopped, mailbox::Change, shared::Shared, sleep_detector::SleepDetector};
use crate::{
    codes,
    contract::{NodeId, Reply, Request},
    member::{Config, Effect, Input, Member},
    traffic::LastTraffic,
};

const ANSWERS_MAX: usize = 256;
/// The thread reads the traffic mark at least this often, even if nothing else is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Work under a lost lease must have stopped this long after its term could last have been valid.
const STOPS_WITHIN: Duration = Duration::from_millis(500);

/// Callbacks of the program.
pub(super) struct Callbacks {
    pub stuck: Option<Arc<dyn Fn() + Send + Sync>>,
    pub unstopped: Option<OnUnstopped>,
}

pub(super) fn start(
    config: Config,
    shared: Arc<Shared>,
    received: mpsc::Receiver<Input>,
    callbacks: Callbacks,
) -> Result<(), Failure> {
    let no_thread =
        |error: std::io::Error| Failure::fatal(codes::NO_THREAD, format!("cannot start the heartbeat: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
    std::thread::Builder::new()
        .name("honeyflow-hive".to_owned())
        .spawn(move || {
            let ends = EndOnDrop(shared.clone());
            runtime.block_on(HeartbeatLoop::new(config, shared, callbacks).run(received));
            drop(ends);
        })
        .map_err(no_thread)?;
    Ok(())
}

/// Marks the membership as ended when the thread ends in any way, so that no caller waits for it.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(Some(Failure::retry(codes::HEARTBEAT_ENDED, "the hive's heartbeat thread has ended")));
    }
}

struct HeartbeatLoop {
    member: Member,
    shared: Arc<Shared>,
    callbacks: Callbacks,
    answers: mpsc::Sender<Input>,
    answered: mpsc::Receiver<Input>,
    effects: Vec<Effect>,
    last_traffic: LastTraffic,
    traffic_read_at: Moment,
    engaged_at: Option<Moment>,
    /// `None` before the first answer, and after trust has run out.
    trust_until: Option<Moment>,
    /// Watches the main runtime, or this thread if the runtime sends no pulses.
    sleep_detector: SleepDetector,
    /// The main runtime sends pulses.
    pulsed: bool,
    engaged_ttl: Duration,
}

impl HeartbeatLoop {
    fn new(config: Config, shared: Arc<Shared>, callbacks: Callbacks) -> HeartbeatLoop {
        // This thread keeps a sender, so answers arrive even after the last handle was dropped.
        let (answers, answered) = mpsc::channel(ANSWERS_MAX);
        let (engaged_ttl, pulsed) = (config.engaged_ttl, config.pulsed);
        let member = Member::new(config);
        let now = shared.clock().now();
        HeartbeatLoop {
            member,
            shared,
            callbacks,
            answers,
            answered,
            effects: Vec::new(),
            last_traffic: LastTraffic::default(),
            traffic_read_at: now,
            engaged_at: None,
            trust_until: None,
            sleep_detector: SleepDetector::new(now),
            pulsed,
            engaged_ttl,
        }
    }

    async fn run(mut self, mut received: mpsc::Receiver<Input>) {
        let mut abandoned = false;
        let mut rung = false;
        self.step(Input::Identity(NodeId(Uuid::new_v4())));
        loop {
            self.read_traffic(std::mem::take(&mut rung));
            if self.carry_out() || self.give_up_unstopped() {
                return;
            }
            let now = self.shared.clock().now();
            let wait = self.member.wake_at().since(now).min(LOOK_EVERY);
            let input = tokio::select! {
                biased;
                Some(input) = self.answered.recv() => input,
                input = received.recv(), if !abandoned => input.unwrap_or_else(|| {
                    abandoned = true;
                    Input::Leave
                }),
                () = self.shared.traffic_bell.notified() => {
                    rung = true;
                    Input::Tick
                }
                () = self.shared.urgent_posted.notified() => Input::Tick,
                () = tokio::time::sleep(wait) => Input::Tick,
            };
            let gone: Vec<Input> = self.shared.take_urgent().collect();
            // Work that has ended may have reported its shards as left just before. Handle that first, so that the
            // shards are handed over.
            let mut inputs = vec![input];
            if !gone.is_empty() {
                inputs.extend(std::iter::from_fn(|| received.try_recv().ok()));
            }
            let (left, others): (Vec<_>, Vec<_>) =
                inputs.into_iter().partition(|input| matches!(input, Input::Left(_)));
            for input in left.into_iter().chain(gone).chain(others) {
                if !self.is_outdated(&input) {
                    self.step(input);
                }
            }
        }
    }

    /// Whether the sender of the input has closed its mailbox meanwhile, so that the input no longer applies.
    fn is_outdated(&self, input: &Input) -> bool {
        match input {
            Input::Want(name) | Input::SitOut { lease: name, .. } | Input::Shards { source: name, .. } => {
                !self.shared.has_reader(name)
            }
            _ => false,
        }
    }

    fn step(&mut self, input: Input) {
        let now = self.shared.clock().now();
        if !self.pulsed || matches!(input, Input::Pulse) {
            self.sleep_detector.pulse(now);
        }
        self.member.step(input, now, &mut self.effects);
        self.shared.set_node(self.member.node());
        if self.trust_until.is_some_and(|until| until <= now) {
            self.trust_until = None;
            self.shared.cut_off_limits();
        }
    }

    /// Reads the traffic mark once a second, and as soon as a pause is over. Otherwise the mark stays set: a request
    /// rings when it finds the mark cleared, and must not ring every time.
    fn read_traffic(&mut self, rung: bool) {
        let now = self.shared.clock().now();
        let age = |at: Moment| now.since(at) < self.engaged_ttl;
        let news = rung && !self.engaged_at.is_some_and(age);
        if !news && now.since(self.traffic_read_at) < LOOK_EVERY {
            return;
        }
        self.traffic_read_at = now;
        let Some(age) = self.last_traffic.read(self.shared.traffic(), news, now) else { return };
        let at = Moment(now.0.saturating_sub(u64::try_from(age.as_micros()).unwrap_or(u64::MAX)));
        if self.engaged_at != Some(at) {
            self.engaged_at = Some(at);
            self.step(Input::Traffic(at));
        }
    }

    /// Gives up lost duties whose work has not stopped in time; another node may already work under the lease. This
    /// node stops being a candidate: it could get the lease again, but the old work would block the new. A runtime that
    /// is stalled as a whole is the watchdog's business. True: the membership is over.
    fn give_up_unstopped(&mut self) -> bool {
        let Some(alive_at) = self.sleep_detector.judge_until() else { return false };
        for lease in self.shared.take_unstopped(alive_at) {
            tracing::error!(
                %lease,
                "work under a lost lease does not stop; stores refuse what it writes under its fence, and other nodes \
                 get the duty until it has stopped"
            );
            self.shared.lock_counters().unstopped += 1;
            if let Some(unstopped) = &self.callbacks.unstopped {
                unstopped(&lease);
            }
            self.step(Input::Unwant(lease));
        }
        self.carry_out()
    }

    /// Carries out all effects. True: the membership is over.
    fn carry_out(&mut self) -> bool {
        let mut over = false;
        while !self.effects.is_empty() && !over {
            for effect in std::mem::take(&mut self.effects) {
                over |= self.carry_out_one(effect);
            }
        }
        over
    }

    fn carry_out_one(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::Call { call, request, until } => {
                let wait = until.since(self.shared.clock().now());
                let doing = request.doing();
                let is_beat = matches!(request, Request::Beat { .. });
                let shows_store_health = is_beat || matches!(request, Request::Join { .. });
                let written = !matches!(request, Request::Beat { read_only: true, .. });
                let (shared, answers) = (self.shared.clone(), self.answers.clone());
                let reply = shared.store().call(request);
                let began = Instant::now();
                tokio::spawn(async move {
                    // The member itself handles the deadline; this timeout only frees the connection.
                    let answer: Result<Result<Reply, Failure>, _> = tokio::time::timeout(wait, reply).await;
                    let Ok(result) = answer else {
                        if shows_store_health {
                            let message =
                                format!("{doing}: no answer for {} ms; is the server overloaded?", wait.as_millis());
                            shared.note_heartbeat_result::<Reply>(
                                &Err(Failure::retry(codes::NO_ANSWER, message)),
                                written,
                            );
                        }
                        return;
                    };
                    if shows_store_health {
                        shared.note_heartbeat_result(&result, written);
                    }
                    if is_beat && result.is_ok() {
                        shared.lock_counters().beat(began.elapsed());
                    }
                    let _ = answers.send(Input::Answer { call, result }).await;
                });
            }
            Effect::Identify => self.step(Input::Identity(NodeId(Uuid::new_v4()))),
            Effect::Granted(term) => {
                tracing::info!(lease = %term.lease(), epoch = term.epoch().0, "lease granted");
                self.shared.post(Change::Gained(term), Moment::FAR);
            }
            Effect::Leave { held, until } => self.shared.post(Change::Leave { held, until }, Moment::FAR),
            Effect::Lost { lease, cause } => {
                tracing::warn!(%lease, cause, "lease lost");
                let now = self.shared.clock().now();
                let read_by = self.trust_until.map_or(now, |until| until.max(now)).after(STOPS_WITHIN);
                self.shared.post(Change::Lost { lease, cause }, read_by);
            }
            Effect::Trust(until) => {
                self.trust_until = Some(until);
                self.shared.set_trust(until);
                self.shared.limits_are_trusted();
            }
            Effect::Changed { view, events } => self.shared.set_view(view, events),
            Effect::Engaged(engaged) => self.shared.set_engaged(engaged),
            Effect::Limits(version) => self.shared.set_limits_version(version),
            Effect::Notice { code, message } => {
                self.shared.lock_counters().notice(code);
                tracing::warn!(code, "{message}");
            }
            Effect::Stuck => {
                tracing::error!("the main runtime has been stalled for 30 s; this node holds no lease");
                if let Some(stuck) = &self.callbacks.stuck {
                    stuck();
                }
            }
            Effect::Removed => {
                tracing::warn!("other members removed this node; it joins again under a fresh identity");
                self.shared.set_out();
            }
            Effect::Refused(failure) => {
                self.shared.end(Some(failure));
                return true;
            }
            Effect::Left => {
                self.shared.end(None);
                return true;
            }
        }
        false
    }
}
