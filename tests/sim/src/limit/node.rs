//! One node of the model: the shipped core, and its requests to the store.

use honeyflow_hive::limit::{
    definition::Terms,
    gcra::FullAt,
    key::{Effect, Key, Mode, Setting, StoreAnswer, immediate},
    local_permits::LocalPermits,
    store_health::StoreHealth,
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Draw {
    pub started_ns: u64,
    pub want: u64,
    pub need: u64,
    pub book: u64,
}

pub struct Node {
    pub terms: Terms,
    key: Key<()>,
    stock: LocalPermits,
    full_at: FullAt,
    standing: StoreHealth,
    /// Calls in flight, without an answer yet.
    flying: Vec<Draw>,
    effects: Vec<Effect<()>>,
    pub calls: u64,
    pub waited: u64,
}

/// After this time a call counts as failed.
pub const CALL_NS: u64 = 500_000_000;

impl Node {
    pub fn new(terms: Terms, nodes: u64) -> Node {
        let mut standing = StoreHealth::new(16, StoreHealth::STORE_BUDGET);
        standing.headcount.record(nodes, nodes);
        Node {
            terms,
            key: Key::default(),
            stock: LocalPermits::default(),
            full_at: FullAt::default(),
            standing,
            flying: Vec::new(),
            effects: Vec::new(),
            calls: 0,
            waited: 0,
        }
    }

    fn setting(&self) -> Setting {
        self.standing.setting(&self.terms)
    }

    pub fn count(&mut self, nodes: u64) {
        self.standing.headcount.record(nodes, nodes);
    }

    pub fn change(&mut self, terms: Terms, now_ns: u64) {
        self.terms = terms;
        self.key.void_permits(now_ns, &self.stock);
        let setting = self.setting();
        self.key.on_setting_changed(now_ns, &setting, &self.stock, &self.full_at, &mut self.effects);
    }

    /// Returns true if the request is admitted at once; otherwise it is decided later.
    pub fn request(&mut self, now_ns: u64) -> bool {
        if let Some(taken) = self.stock.take(now_ns, 1) {
            if taken.low {
                self.step(now_ns);
            }
            return true;
        }
        let setting = self.setting();
        if let Mode::Alone(share) = setting.mode {
            return self.full_at.take(&share, now_ns, 1).is_ok();
        }
        self.key.ask(immediate((), 1, now_ns), now_ns, &setting, &self.stock, &self.full_at, &mut self.effects);
        false
    }

    pub fn step(&mut self, now_ns: u64) {
        let late = self.flying.iter().position(|draw| draw.started_ns + CALL_NS <= now_ns);
        let failed = late.map(|at| self.flying.remove(at));
        if let Some(draw) = failed {
            self.answer(draw, None, now_ns);
        }
        if self.standing.tick(failed.map(|draw| draw.started_ns), now_ns) {
            let setting = self.setting();
            self.key.on_setting_changed(now_ns, &setting, &self.stock, &self.full_at, &mut self.effects);
        }
        let setting = self.setting();
        self.key.attend(now_ns, &setting, &self.stock, &self.full_at, &mut self.effects);
        if self.standing.breaker.is_open() && self.standing.breaker.allows(now_ns) {
            // A probe: no request waits for its permit.
            self.effects.push(Effect::Draw { want: 1, need: 0, reserve: 0 });
        }
    }

    pub fn answered(&mut self, draw: Draw, drawn: StoreAnswer, now_ns: u64) {
        let Some(at) = self.flying.iter().position(|one| *one == draw) else { return };
        self.flying.remove(at);
        if self.standing.breaker.on_answer() {
            let setting = self.setting();
            self.key.on_setting_changed(now_ns, &setting, &self.stock, &self.full_at, &mut self.effects);
        }
        self.answer(draw, Some(drawn), now_ns);
    }

    fn answer(&mut self, draw: Draw, drawn: Option<StoreAnswer>, now_ns: u64) {
        let setting = self.setting();
        self.key.on_draw_answer(draw.started_ns, drawn, now_ns, &setting, &self.stock, &mut self.effects);
    }

    /// Returns how many requests were admitted, and the draws to send.
    pub fn effects(&mut self, now_ns: u64) -> (u64, Vec<Draw>) {
        let (mut granted, mut draws) = (0, Vec::new());
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Grant { waited_ns, .. } => {
                    granted += 1;
                    self.waited += u64::from(waited_ns > 0);
                }
                Effect::Draw { want, need, reserve: book } => draws.push(Draw { started_ns: now_ns, want, need, book }),
                Effect::Refuse { .. } | Effect::Take { .. } | Effect::Hold { .. } | Effect::GiveBack { .. } => {}
            }
        }
        for draw in &draws {
            self.standing.breaker.on_call(now_ns);
            self.calls += 1;
            self.flying.push(*draw);
        }
        (granted, draws)
    }

    pub fn wake_at_ns(&self) -> u64 {
        let late = self.flying.iter().map(|draw| draw.started_ns + CALL_NS).min();
        let breaker = self.standing.breaker.wake_at_ns();
        [late, breaker].into_iter().flatten().min().unwrap_or(u64::MAX).min(self.key.wake_at_ns())
    }
}
