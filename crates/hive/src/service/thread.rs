//! The heartbeat's thread: it owns the member, carries out its effects, and brings back what comes of them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use honeyflow_runtime::{Failure, Moment};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{OnUnstopped, awake::Awake, mailbox::Change, shared::Shared};
use crate::{
    contract::{NodeId, Reply, Request},
    member::{Config, Effect, Input, Member},
    traffic::LastTraffic,
};

const ANSWERS_MAX: usize = 256;
/// However far away the next thing is, the mark of traffic is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// So long after its term could last have been good, work under a lost lease has to have stopped.
const STOPS_WITHIN: Duration = Duration::from_millis(500);

/// What a program wants to be told at once.
pub(super) struct Calls {
    pub stuck: Option<Arc<dyn Fn() + Send + Sync>>,
    pub unstopped: Option<OnUnstopped>,
}

pub(super) fn start(
    config: Config,
    shared: Arc<Shared>,
    received: mpsc::Receiver<Input>,
    calls: Calls,
) -> Result<(), Failure> {
    let no_thread = |error: std::io::Error| Failure::fatal("no-thread", format!("cannot start the heartbeat: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
    std::thread::Builder::new()
        .name("honeyflow-hive".to_owned())
        .spawn(move || {
            let ends = Ends(shared.clone());
            runtime.block_on(Heart::new(config, shared, calls).beat(received));
            drop(ends);
        })
        .map_err(no_thread)?;
    Ok(())
}

/// However the thread ends, nobody waits for it.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.end(Some(Failure::retry("heartbeat-ended", "the hive's heartbeat has ended")));
    }
}

struct Heart {
    member: Member,
    shared: Arc<Shared>,
    calls: Calls,
    answers: mpsc::Sender<Input>,
    answered: mpsc::Receiver<Input>,
    effects: Vec<Effect>,
    last_traffic: LastTraffic,
    looked_at: Moment,
    engaged_at: Option<Moment>,
    /// None before the first answer, and once it has run out.
    trust_until: Option<Moment>,
    /// The main runtime; the heart itself, if nobody watches that one.
    awake: Awake,
    /// Somebody tells that the main runtime lives.
    pulsed: bool,
    engaged_ttl: Duration,
}

impl Heart {
    fn new(config: Config, shared: Arc<Shared>, calls: Calls) -> Heart {
        // The heart keeps the sender itself: answers come in even after the last handle has gone.
        let (answers, answered) = mpsc::channel(ANSWERS_MAX);
        let (engaged_ttl, pulsed) = (config.engaged_ttl, config.pulsed);
        let member = Member::new(config);
        let looked_at = shared.clock().now();
        Heart {
            member,
            shared,
            calls,
            answers,
            answered,
            effects: Vec::new(),
            last_traffic: LastTraffic::default(),
            looked_at,
            engaged_at: None,
            trust_until: None,
            awake: Awake::new(looked_at),
            pulsed,
            engaged_ttl,
        }
    }

    async fn beat(mut self, mut received: mpsc::Receiver<Input>) {
        let mut abandoned = false;
        let mut rung = false;
        self.step(Input::Identity(NodeId(Uuid::new_v4())));
        loop {
            self.look_for_traffic(std::mem::take(&mut rung));
            if self.carry_out() || self.give_up_what_has_not_stopped() {
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
                () = self.shared.bell.notified() => {
                    rung = true;
                    Input::Tick
                }
                () = self.shared.spoken.notified() => Input::Tick,
                () = tokio::time::sleep(wait) => Input::Tick,
            };
            let gone: Vec<Input> = self.shared.take_said().collect();
            // Whoever has gone may have left its shards just before: first that, so that they are handed over.
            let mut inputs = vec![input];
            if !gone.is_empty() {
                inputs.extend(std::iter::from_fn(|| received.try_recv().ok()));
            }
            let (left, others): (Vec<_>, Vec<_>) =
                inputs.into_iter().partition(|input| matches!(input, Input::Left(_)));
            for input in left.into_iter().chain(gone).chain(others) {
                if !self.is_moot(&input) {
                    self.step(input);
                }
            }
        }
    }

    /// Whoever wanted it has gone before its wish was heard.
    fn is_moot(&self, input: &Input) -> bool {
        match input {
            Input::Want(name) | Input::SitOut { lease: name, .. } | Input::Shards { source: name, .. } => {
                !self.shared.is_read(name)
            }
            _ => false,
        }
    }

    fn step(&mut self, input: Input) {
        let now = self.shared.clock().now();
        if !self.pulsed || matches!(input, Input::Pulse) {
            self.awake.pulse(now);
        }
        self.member.step(input, now, &mut self.effects);
        self.shared.set_node(self.member.node());
        if self.trust_until.is_some_and(|until| until <= now) {
            self.trust_until = None;
            self.shared.cut_off_limits();
        }
    }

    /// Now and then, and as soon as a pause is over. In between the mark stays as it is: whoever rings has found it
    /// cleared, and must not ring with every request.
    fn look_for_traffic(&mut self, rung: bool) {
        let now = self.shared.clock().now();
        let age = |at: Moment| now.since(at) < self.engaged_ttl;
        let news = rung && !self.engaged_at.is_some_and(age);
        if !news && now.since(self.looked_at) < LOOK_EVERY {
            return;
        }
        self.looked_at = now;
        let Some(age) = self.last_traffic.read(self.shared.traffic(), news, now) else { return };
        let at = Moment(now.0.saturating_sub(u64::try_from(age.as_micros()).unwrap_or(u64::MAX)));
        if self.engaged_at != Some(at) {
            self.engaged_at = Some(at);
            self.step(Input::Traffic(at));
        }
    }

    /// Whoever leads a duty has to stop and cannot; others may be at work under the lease by now. It is left to them:
    /// here nobody would work under it, though this node could hold it again. A runtime that stands still as a whole is
    /// judged by its pulse. True: it is over.
    fn give_up_what_has_not_stopped(&mut self) -> bool {
        let Some(alive_at) = self.awake.judges() else { return false };
        for lease in self.shared.unstopped(alive_at) {
            tracing::error!(
                %lease,
                "work under a lost lease does not stop; what it writes under its fence is refused, and the duty is left to other \
                 nodes until it has stopped"
            );
            self.shared.counting().unstopped += 1;
            if let Some(unstopped) = &self.calls.unstopped {
                unstopped(&lease);
            }
            self.step(Input::Unwant(lease));
        }
        self.carry_out()
    }

    /// True: it is over.
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
                let says_life = is_beat || matches!(request, Request::Join { .. });
                let written = !matches!(request, Request::Beat { read_only: true, .. });
                let (shared, answers) = (self.shared.clone(), self.answers.clone());
                let asked = shared.store().call(request);
                let began = Instant::now();
                tokio::spawn(async move {
                    // The member itself knows when it is too late; here the connection is let go of.
                    let answer: Result<Result<Reply, Failure>, _> = tokio::time::timeout(wait, asked).await;
                    let Ok(result) = answer else {
                        if says_life {
                            let said =
                                format!("{doing}: no answer for {} ms; is the server overloaded?", wait.as_millis());
                            shared.store_answered::<Reply>(&Err(Failure::retry("no-answer", said)), written);
                        }
                        return;
                    };
                    if says_life {
                        shared.store_answered(&result, written);
                    }
                    if is_beat && result.is_ok() {
                        shared.counting().beat(began.elapsed());
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
                let hear_by = self.trust_until.map_or(now, |until| until.max(now)).after(STOPS_WITHIN);
                self.shared.post(Change::Lost { lease, cause }, hear_by);
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
                self.shared.counting().notice(code);
                tracing::warn!(code, "{message}");
            }
            Effect::Stuck => {
                tracing::error!("the main runtime has stood still for half a minute; this node holds no lease");
                if let Some(stuck) = &self.calls.stuck {
                    stuck();
                }
            }
            Effect::Buried => {
                tracing::warn!("this node was buried by others; it joins again under a fresh identity");
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
