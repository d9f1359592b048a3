//! Transfers of a lease: it is never free in between.

use honeyflow_hive::{
    Reply, Request,
    contract::{Refusal, State},
};

use super::{
    TTL_MS, TestContext,
    test_member::{eligible_state, epoch_of, fresh_id},
};

const LEASE: &str = "queen";

pub async fn hv_36_a_transfer_to_itself_mints_a_new_epoch(t: &TestContext<'_>) {
    let member = t.member().await;
    let epoch = member.take(LEASE).await;
    let minted = epoch_of(&member.call(member.transfer_request(LEASE, epoch, member.id)).await);
    assert!(minted > epoch);
    let again = member.call(member.transfer_request(LEASE, epoch, member.id)).await;
    assert_eq!(again, Reply::Refused(Refusal::Raced), "the old epoch has ended");
    let lease = member.look(LEASE).await;
    assert_eq!((lease.epoch, lease.holder, lease.free), (minted, Some(member.id), false));
}

pub async fn hv_36_an_ineligible_holder_may_still_mint_its_own_lease(t: &TestContext<'_>) {
    let member = t.member().await;
    let epoch = member.take(LEASE).await;
    member.beat_with(State::default()).await;
    assert!(epoch_of(&member.call(member.transfer_request(LEASE, epoch, member.id)).await) > epoch);
}

pub async fn hv_45_a_transferred_lease_is_never_free(t: &TestContext<'_>) {
    let (member, successor) = (t.member().await, t.member().await);
    let epoch = member.take(LEASE).await;
    let minted = epoch_of(&member.call(member.transfer_request(LEASE, epoch, successor.id)).await);
    assert!(minted > epoch);
    let lease = member.look(LEASE).await;
    assert_eq!((lease.epoch, lease.holder, lease.successor, lease.free), (minted, Some(successor.id), None, false));
    assert_eq!(lease.cause, "moving");
    assert!(
        !member.release(LEASE, epoch).await && !member.release(LEASE, minted).await,
        "the lease belongs to another member"
    );
    // A holder that was named by another member mints a new epoch before it acts.
    assert!(epoch_of(&successor.call(successor.transfer_request(LEASE, minted, successor.id)).await) > minted);
}

pub async fn hv_45_only_an_eligible_member_becomes_successor(t: &TestContext<'_>) {
    let (member, newcomer, late) = (t.member().await, t.newcomer("new").await, t.member().await);
    let epoch = member.take(LEASE).await;
    for successor in [newcomer.id, fresh_id()] {
        assert_eq!(member.call(member.transfer_request(LEASE, epoch, successor)).await, Reply::Refused(Refusal::Unfit));
    }
    if t.step_clock(TTL_MS.cast_signed() + 1).await {
        member.beat().await;
        assert_eq!(
            member.call(member.transfer_request(LEASE, epoch, late.id)).await,
            Reply::Refused(Refusal::Unfit),
            "expired"
        );
    }
    let lease = member.look(LEASE).await;
    assert_eq!((lease.epoch, lease.holder), (epoch, Some(member.id)));
}

pub async fn hv_45_a_successor_is_announced_and_becomes_warm(t: &TestContext<'_>) {
    let (member, successor) = (t.member().await, t.member().await);
    let term = member.term(LEASE).await;
    let version = member.version().await;
    let announce = Request::SetSuccessor { fence: term.fence(), successor: Some(successor.id) };
    assert_eq!(member.call(announce).await, Reply::Done);
    let status = successor.beat().await;
    assert_eq!(status.successor_of, [LEASE.into()]);
    assert_eq!(status.queen.and_then(|queen| queen.successor), Some(successor.id));
    let lease = member.look(LEASE).await;
    assert!(lease.successor == Some(successor.id) && !lease.successor_is_warm, "{lease:?}");
    successor.beat_with(State { warm: vec!["duty/x".into(), LEASE.into()], ..eligible_state() }).await;
    assert!(member.look(LEASE).await.successor_is_warm);
    assert_eq!(member.version().await, version, "no event before the transfer");
    assert_eq!(member.call(Request::SetSuccessor { fence: term.fence(), successor: None }).await, Reply::Done);
    assert!(successor.beat().await.successor_of.is_empty());
    member.call(Request::SetSuccessor { fence: term.fence(), successor: Some(successor.id) }).await;
    epoch_of(&member.call(member.transfer_request(LEASE, term.epoch(), successor.id)).await);
    assert_eq!(member.look(LEASE).await.successor, None);
    assert!(successor.beat().await.successor_of.is_empty());
}

pub async fn hv_41_only_a_valid_fence_names_a_successor(t: &TestContext<'_>) {
    let (member, successor, newcomer) = (t.member().await, t.member().await, t.newcomer("new").await);
    let term = member.term(LEASE).await;
    let unfit = Request::SetSuccessor { fence: term.fence(), successor: Some(newcomer.id) };
    assert_eq!(member.call(unfit).await, Reply::Refused(Refusal::Unfit));
    epoch_of(&member.call(member.transfer_request(LEASE, term.epoch(), member.id)).await);
    let stale = Request::SetSuccessor { fence: term.fence(), successor: Some(successor.id) };
    assert_eq!(member.call(stale).await, Reply::Stale(vec![LEASE.into()]));
    assert_eq!(member.look(LEASE).await.successor, None);
}

/// A member that leaves in good order is replaced at once.
pub async fn no_word_on_exit(t: &TestContext<'_>) {
    let (member, other) = (t.member().await, t.member().await);
    let epoch = member.take(LEASE).await;
    assert!(member.release(LEASE, epoch).await);
    member.call(Request::Leave { node: member.id }).await;
    assert!(other.look(LEASE).await.free);
    assert!(other.take(LEASE).await > epoch);
}
