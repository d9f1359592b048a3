//! A lease that changes hands without being free in between.

use honeyflow_hive::{
    Reply, Request,
    contract::{Refusal, State},
};

use super::{
    TTL_MS, Table,
    bee::{epoch_of, fresh_id, leading},
};

const LEASE: &str = "queen";

pub async fn hv_36_a_hand_over_to_itself_mints_anew(t: &Table<'_>) {
    let bee = t.bee().await;
    let epoch = bee.take(LEASE).await;
    let minted = epoch_of(&bee.call(bee.over(LEASE, epoch, bee.id)).await);
    assert!(minted > epoch);
    let again = bee.call(bee.over(LEASE, epoch, bee.id)).await;
    assert_eq!(again, Reply::Refused(Refusal::Raced), "the old epoch is over");
    let lease = bee.look(LEASE).await;
    assert_eq!((lease.epoch, lease.holder, lease.free), (minted, Some(bee.id), false));
}

pub async fn hv_36_who_is_not_eligible_may_still_mint_its_own_anew(t: &Table<'_>) {
    let bee = t.bee().await;
    let epoch = bee.take(LEASE).await;
    bee.beat_with(State::default()).await;
    assert!(epoch_of(&bee.call(bee.over(LEASE, epoch, bee.id)).await) > epoch);
}

pub async fn hv_45_a_hand_over_is_never_vacant(t: &Table<'_>) {
    let (bee, heir) = (t.bee().await, t.bee().await);
    let epoch = bee.take(LEASE).await;
    let minted = epoch_of(&bee.call(bee.over(LEASE, epoch, heir.id)).await);
    assert!(minted > epoch);
    let lease = bee.look(LEASE).await;
    assert_eq!((lease.epoch, lease.holder, lease.heir, lease.free), (minted, Some(heir.id), None, false));
    assert_eq!(lease.cause, "moving");
    assert!(!bee.release(LEASE, epoch).await && !bee.release(LEASE, minted).await, "no longer its own");
    // Named by another: it mints anew before it acts.
    assert!(epoch_of(&heir.call(heir.over(LEASE, minted, heir.id)).await) > minted);
}

pub async fn hv_45_only_who_may_lead_is_an_heir(t: &Table<'_>) {
    let (bee, newcomer, late) = (t.bee().await, t.newcomer("new").await, t.bee().await);
    let epoch = bee.take(LEASE).await;
    for heir in [newcomer.id, fresh_id()] {
        assert_eq!(bee.call(bee.over(LEASE, epoch, heir)).await, Reply::Refused(Refusal::Unfit));
    }
    if t.step_clock(TTL_MS.cast_signed() + 1).await {
        bee.beat().await;
        assert_eq!(bee.call(bee.over(LEASE, epoch, late.id)).await, Reply::Refused(Refusal::Unfit), "expired");
    }
    let lease = bee.look(LEASE).await;
    assert_eq!((lease.epoch, lease.holder), (epoch, Some(bee.id)));
}

pub async fn hv_45_an_heir_is_announced_and_gets_warm(t: &Table<'_>) {
    let (bee, heir) = (t.bee().await, t.bee().await);
    let term = bee.term(LEASE).await;
    let version = bee.version().await;
    let announce = Request::SetHeir { fence: term.fence(), heir: Some(heir.id) };
    assert_eq!(bee.call(announce).await, Reply::Done);
    let told = heir.beat().await;
    assert_eq!(told.heir_of, [LEASE.into()]);
    assert_eq!(told.queen.and_then(|queen| queen.heir), Some(heir.id));
    let lease = bee.look(LEASE).await;
    assert!(lease.heir == Some(heir.id) && !lease.heir_is_warm, "{lease:?}");
    heir.beat_with(State { warm: vec!["duty/x".into(), LEASE.into()], ..leading() }).await;
    assert!(bee.look(LEASE).await.heir_is_warm);
    assert_eq!(bee.version().await, version, "no event until it changes hands");
    assert_eq!(bee.call(Request::SetHeir { fence: term.fence(), heir: None }).await, Reply::Done);
    assert!(heir.beat().await.heir_of.is_empty());
    bee.call(Request::SetHeir { fence: term.fence(), heir: Some(heir.id) }).await;
    epoch_of(&bee.call(bee.over(LEASE, term.epoch(), heir.id)).await);
    assert_eq!(bee.look(LEASE).await.heir, None);
    assert!(heir.beat().await.heir_of.is_empty());
}

pub async fn hv_41_only_a_fence_that_holds_names_an_heir(t: &Table<'_>) {
    let (bee, heir, newcomer) = (t.bee().await, t.bee().await, t.newcomer("new").await);
    let term = bee.term(LEASE).await;
    let unfit = Request::SetHeir { fence: term.fence(), heir: Some(newcomer.id) };
    assert_eq!(bee.call(unfit).await, Reply::Refused(Refusal::Unfit));
    epoch_of(&bee.call(bee.over(LEASE, term.epoch(), bee.id)).await);
    let stale = Request::SetHeir { fence: term.fence(), heir: Some(heir.id) };
    assert_eq!(bee.call(stale).await, Reply::Stale(vec![LEASE.into()]));
    assert_eq!(bee.look(LEASE).await.heir, None);
}

/// Whoever leaves with a word is replaced at once.
pub async fn no_word_on_exit(t: &Table<'_>) {
    let (bee, other) = (t.bee().await, t.bee().await);
    let epoch = bee.take(LEASE).await;
    assert!(bee.release(LEASE, epoch).await);
    bee.call(Request::Leave { node: bee.id }).await;
    assert!(other.look(LEASE).await.free);
    assert!(other.take(LEASE).await > epoch);
}
