//! The rules of membership, one by one, on a clock that the test moves.

use uuid::Uuid;

use super::*;
use crate::contract::{Head, LeaseRow, Refusal};

const LEASE: &str = "shard/shop/0";

struct Table {
    member: Member,
    now: Moment,
    effects: Vec<Effect>,
}

impl Table {
    fn new() -> Table {
        let config = Config::new(NodeId(Uuid::from_u128(1)), "a".into(), "{}".to_owned());
        Table { member: Member::new(config), now: Moment::from_millis(1_000_000), effects: Vec::new() }
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        self.member.step(input, self.now, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    fn pass(&mut self, millis: u64) -> Vec<Effect> {
        self.now = self.now.after(Duration::from_millis(millis));
        self.step(Input::Tick)
    }

    /// Answers the newest call of a kind; it was sent `ago` milliseconds ago.
    fn answer(&mut self, call: u64, ago: u64, reply: Reply) -> Vec<Effect> {
        let sent_at = Moment(self.now.0 - ago * 1000);
        self.step(Input::Answer { call, sent_at, result: Ok(reply) })
    }

    /// Joined, and eligible by its first beat: it looks.
    fn join(&mut self) -> u64 {
        let effects = self.answer(1, 0, Reply::Joined(Box::default()));
        let beat = call_of(&effects, |request| matches!(request, Request::Beat { state, .. } if state.eligible));
        call_of(&self.answer(beat, 0, beaten(true)), |request| matches!(request, Request::Look { .. }))
    }

    /// A member that holds the lease under epoch 5.
    fn holding() -> Table {
        let mut table = Table::new();
        table.step(Input::Want(LEASE.into()));
        let look = table.join();
        let effects = table.answer(look, 0, lease(None));
        let take =
            call_of(&effects, |request| matches!(request, Request::Take { claims, .. } if claims[0].epoch.0 == 4));
        let effects = table.answer(take, 0, taken(5));
        assert!(matches!(&effects[..], [Effect::Granted(term)] if term.epoch() == Epoch(5)), "{effects:?}");
        table
    }
}

fn beaten(member: bool) -> Reply {
    let head = Head { server: "s".into(), lineage: Some("s".into()), ..Head::default() };
    Reply::Beat(Box::new(Status { head, member, renewed: true, ..Status::default() }))
}

/// Epoch 4, held by someone or free.
fn lease(holder: Option<NodeId>) -> Reply {
    let row = LeaseRow {
        name: LEASE.into(),
        epoch: Epoch(4),
        holder,
        heir: None,
        since_ms: 0,
        cause: String::new(),
        free: holder.is_none(),
        heir_is_warm: false,
    };
    Reply::Leases { hive_ms: 0, leases: vec![row] }
}

fn taken(epoch: u64) -> Reply {
    Reply::Taken(vec![Held { lease: LEASE.into(), epoch: Epoch(epoch) }])
}

fn call_of(effects: &[Effect], wanted: impl Fn(&Request) -> bool) -> u64 {
    let found = effects.iter().find_map(|effect| match effect {
        Effect::Call { call, request } if wanted(request) => Some(*call),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no such call in {effects:?}"))
}

fn is_lost(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Lost { .. }))
}

#[test]
fn hv_9_nothing_is_taken_before_the_join_is_answered() {
    let mut table = Table::new();
    let effects = table.step(Input::Want(LEASE.into()));
    assert!(matches!(&effects[..], [Effect::Call { request: Request::Join { .. }, .. }]), "{effects:?}");
    assert_eq!(table.pass(60_000), []);
}

#[test]
fn hv_12_trust_counts_from_the_start_of_the_beat_not_from_its_answer() {
    let mut table = Table::holding();
    let beat = call_of(&table.pass(2_000), |request| matches!(request, Request::Beat { read_only: false, .. }));
    table.now = table.now.after(Duration::from_millis(2_500));
    let effects = table.answer(beat, 2_500, beaten(true));
    let until = Moment(table.now.0 - 2_500_000).after(Duration::from_millis(4_800));
    assert!(effects.contains(&Effect::Trust(until)), "{effects:?}");
}

#[test]
fn hv_12_past_its_trust_every_term_is_dead_without_asking_anyone() {
    let mut table = Table::holding();
    assert!(!is_lost(&table.pass(4_700)));
    assert!(is_lost(&table.pass(200)));
}

/// HV-13, F04: the late answer revives nothing; the lease goes on only under a new epoch.
#[test]
fn hv_13_a_dead_term_never_revives() {
    let mut table = Table::holding();
    let late = call_of(&table.pass(2_000), |request| matches!(request, Request::Beat { .. }));
    let effects = table.pass(5_000);
    assert!(is_lost(&effects), "{effects:?}");
    let effects = table.answer(late, 5_000, beaten(true));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Granted(_))), "{effects:?}");
    let mut effects = effects;
    effects.extend(table.pass(1_000));
    let ask = call_of(&effects, |request| matches!(request, Request::Beat { read_only: true, .. }));
    let effects = table.answer(ask, 0, beaten(true));
    let renew = call_of(&effects, |request| matches!(request, Request::Beat { read_only: false, .. }));
    let effects = table.answer(renew, 0, beaten(true));
    let mint =
        call_of(&effects, |request| matches!(request, Request::HandOver { claims, .. } if claims[0].epoch.0 == 5));
    let effects = table.answer(mint, 0, taken(9));
    assert!(matches!(&effects[..], [Effect::Granted(term)] if term.epoch() == Epoch(9)), "{effects:?}");
}

#[test]
fn hv_10_a_deaf_node_asks_without_renewing() {
    let mut table = Table::holding();
    table.pass(5_000);
    let effects = table.pass(3_000);
    let renews = effects
        .iter()
        .any(|effect| matches!(effect, Effect::Call { request: Request::Beat { read_only: false, .. }, .. }));
    assert!(!renews, "a node that cannot hear would hold its leases for ever: {effects:?}");
}

#[test]
fn hv_13_whoever_was_buried_stops_everything() {
    let mut table = Table::holding();
    let beat = call_of(&table.pass(2_000), |request| matches!(request, Request::Beat { .. }));
    let effects = table.answer(beat, 0, beaten(false));
    assert!(is_lost(&effects) && effects.contains(&Effect::Buried), "{effects:?}");
    assert_eq!(table.member.wake_at(), Moment::FAR);
}

#[test]
fn hv_34_a_lease_that_another_holds_is_looked_at_again_and_not_taken() {
    let mut table = Table::new();
    table.step(Input::Want(LEASE.into()));
    let look = table.join();
    let effects = table.answer(look, 0, lease(Some(NodeId(Uuid::from_u128(2)))));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Call { request: Request::Take { .. }, .. })));
    call_of(&table.pass(600), |request| matches!(request, Request::Look { .. }));
}

#[test]
fn hv_36_minting_refused_means_the_lease_has_gone() {
    let mut table = Table::holding();
    let effects = table.step(Input::Mint { lease: LEASE.into(), floor: Epoch(70) });
    let mint =
        call_of(&effects, |request| matches!(request, Request::HandOver { claims, .. } if claims[0].floor.0 == 70));
    assert!(is_lost(&table.answer(mint, 0, Reply::Refused(Refusal::Raced))));
}

/// RL-12: whether an epoch was minted is unknown: the old one may be gone, so it is not used.
#[test]
fn rl_12_an_unanswered_mint_is_not_trusted() {
    let mut table = Table::holding();
    let effects = table.step(Input::Mint { lease: LEASE.into(), floor: Epoch(0) });
    let mint = call_of(&effects, |request| matches!(request, Request::HandOver { .. }));
    let failure = Failure::retry("cut", "the connection broke");
    let effects = table.step(Input::Answer { call: mint, sent_at: table.now, result: Err(failure) });
    assert!(is_lost(&effects), "{effects:?}");
}

#[test]
fn hv_21_leaving_releases_what_is_held() {
    let mut table = Table::holding();
    let effects = table.step(Input::Leave);
    call_of(&effects, |request| matches!(request, Request::Release { held, .. } if held[0].epoch.0 == 5));
    let leave = call_of(&effects, |request| matches!(request, Request::Leave { .. }));
    assert_eq!(table.answer(leave, 0, Reply::Done), [Effect::Left]);
}

/// HV-9: a row of this identity that nobody knows the origin of is left to be buried.
#[test]
fn hv_9_an_identity_that_is_known_already_is_given_up() {
    let mut table = Table::new();
    table.step(Input::Want(LEASE.into()));
    assert_eq!(table.answer(1, 0, Reply::Refused(Refusal::Known)), [Effect::Buried]);
}

#[test]
fn hv_23_another_store_ends_all_terms_and_is_recorded() {
    let mut table = Table::holding();
    let beat = call_of(&table.pass(2_000), |request| matches!(request, Request::Beat { .. }));
    let head = Head { server: "new".into(), lineage: Some("s".into()), ..Head::default() };
    let status = Status { head, member: true, renewed: true, ..Status::default() };
    let effects = table.answer(beat, 0, Reply::Beat(Box::new(status)));
    assert!(is_lost(&effects), "{effects:?}");
    let recorded = Request::NewLineage { was: Some("s".into()), found: "new".into() };
    let record = call_of(&effects, |request| *request == recorded);
    let mints = |effects: &[Effect]| {
        effects.iter().any(|effect| matches!(effect, Effect::Call { request: Request::HandOver { .. }, .. }))
    };
    assert!(!mints(&effects), "{effects:?}");
    assert!(!mints(&table.answer(record, 0, Reply::Done)));
}
