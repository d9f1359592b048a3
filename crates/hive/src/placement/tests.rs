use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn id(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(n))
}

fn node(n: u128) -> Candidate {
    Candidate { id: id(n), name: format!("node-{n}").into(), weight: 1, pinned: Vec::new() }
}

fn lease(n: usize) -> Name {
    format!("shard/shop/{n}").into()
}

fn free(count: usize) -> Vec<Shard> {
    (0..count).map(|n| Shard { lease: lease(n), holder: None, pinned_only: false }).collect()
}

/// The rows after every node has got the shards it should own.
fn settle(nodes: &[Candidate], shards: &[Shard]) -> Vec<Shard> {
    let owners = place(nodes, shards);
    shards
        .iter()
        .zip(owners)
        .map(|(shard, owner)| Shard { holder: owner.map(|at| nodes[at].id), ..shard.clone() })
        .collect()
}

fn counts(nodes: &[Candidate], shards: &[Shard]) -> Vec<usize> {
    nodes.iter().map(|node| shards.iter().filter(|shard| shard.holder == Some(node.id)).count()).collect()
}

fn moved(before: &[Shard], after: &[Shard]) -> usize {
    before.iter().zip(after).filter(|(a, b)| a.holder != b.holder).count()
}

/// The values of other implementations of the hash: another binary must compute the same placement.
#[test]
fn hv_53_scores_have_fixed_values() {
    assert_eq!(score("", None, ""), xxh64(&[0], 0));
    assert_eq!(score("a", None, "shard/shop/0"), 0xa1e2_2260_43cf_84ad);
    assert_eq!(score("node-1", None, "shard/shop/63"), 0x5981_a318_f047_638a);
    assert_eq!(score("a", Some(id(1)), "queen"), 0x7e3b_163c_add6_c496);
}

#[test]
fn hv_53_shards_are_even_over_equal_nodes() {
    for count in 1..20 {
        let nodes: Vec<Candidate> = (1..=count).map(node).collect();
        let counts = counts(&nodes, &settle(&nodes, &free(64)));
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - least <= 1, "{count} nodes: {counts:?}");
    }
}

#[test]
fn hv_53_a_join_and_a_leave_move_no_more_than_that_nodes_share() {
    let mut nodes: Vec<Candidate> = (1..=3).map(node).collect();
    let mut shards = settle(&nodes, &free(64));
    for n in 4..=10 {
        nodes.push(node(n));
        let after = settle(&nodes, &shards);
        assert!(moved(&shards, &after) <= 64_usize.div_ceil(nodes.len()), "join of {n}: {}", moved(&shards, &after));
        shards = after;
    }
    while nodes.len() > 1 {
        let share = 64_usize.div_ceil(nodes.len());
        let gone = nodes.remove(0).id;
        shards.iter_mut().filter(|shard| shard.holder == Some(gone)).for_each(|shard| shard.holder = None);
        let after = settle(&nodes, &shards);
        let stayed = shards.iter().zip(&after).filter(|(a, b)| a.holder.is_some() && a.holder != b.holder).count();
        assert_eq!(stayed, 0, "no shard of another node moves");
        assert!(moved(&shards, &after) <= share);
        shards = after;
    }
}

#[test]
fn hv_53_weights_are_followed_and_none_means_none() {
    let weights = [1, 0, 2, 4];
    let nodes: Vec<Candidate> = (1..).zip(weights).map(|(n, weight)| Candidate { weight, ..node(n) }).collect();
    assert_eq!(counts(&nodes, &settle(&nodes, &free(7))), [1, 0, 2, 4]);
    assert_eq!(counts(&nodes, &settle(&nodes, &free(64))).iter().sum::<usize>(), 64);
}

#[test]
fn hv_53_nodes_with_the_same_name_are_distinguished() {
    let nodes: Vec<Candidate> = (1..=2).map(|n| Candidate { name: "same".into(), ..node(n) }).collect();
    assert_eq!(counts(&nodes, &settle(&nodes, &free(64))), [32, 32]);
}

#[test]
fn hv_57_pinned_nodes_take_their_pinned_shards_and_no_others() {
    let pinned = |n, range: std::ops::Range<usize>| Candidate { pinned: range.map(lease).collect(), ..node(n) };
    let nodes = vec![pinned(1, 0..16), node(2), node(3)];
    let shards = settle(&nodes, &free(64));
    assert!(shards[..16].iter().all(|shard| shard.holder == Some(id(1))));
    assert_eq!(counts(&nodes, &shards), [16, 24, 24]);
    // If two nodes are pinned to one shard, the lease decides.
    let both = vec![pinned(1, 0..16), pinned(4, 0..16)];
    let after = settle(&both, &shards);
    assert!(after[..16].iter().all(|shard| shard.holder == Some(id(1))));
    assert!(after[16..].iter().all(|shard| shard.holder.is_none()), "pinned nodes take no others");
}

/// HV-56, HV-57: a missing pinned owner stops no other node.
#[test]
fn one_missing_static_owner_stops_all() {
    let others = vec![node(2), node(3)];
    let mut shards = free(64);
    assert!(
        settle(&others, &shards).iter().all(|shard| shard.holder.is_some()),
        "others take the shards it was pinned to"
    );
    shards[..16].iter_mut().for_each(|shard| shard.pinned_only = true);
    let after = settle(&others, &shards);
    assert!(after[..16].iter().all(|shard| shard.holder.is_none()), "the shard waits if it is pinned only");
    assert!(after[16..].iter().all(|shard| shard.holder.is_some()));
}

#[test]
fn hv_94_a_thousand_nodes_are_placed() {
    let nodes: Vec<Candidate> = (1..=1_000).map(node).collect();
    let shards = settle(&nodes, &free(64));
    assert_eq!(counts(&nodes, &shards).iter().filter(|count| **count == 1).count(), 64);
}

proptest! {
    /// For any rows: each node is within its quota, every shard is placed, and a second placement moves nothing.
    #[test]
    fn hv_53_placement_is_even_complete_and_stable(
        weights in proptest::collection::vec(0_u32..5, 1..12),
        holders in proptest::collection::vec(0_u128..14, 1..80),
        order in any::<u64>(),
    ) {
        let nodes: Vec<Candidate> =
            (1..).zip(&weights).map(|(n, weight)| Candidate { weight: *weight, ..node(n) }).collect();
        let shards: Vec<Shard> = holders
            .iter()
            .enumerate()
            .map(|(at, holder)| Shard { holder: (*holder > 0).then(|| id(*holder)), ..free(at + 1).remove(at) })
            .collect();
        let after = settle(&nodes, &shards);
        let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let counts = counts(&nodes, &after);
        for (count, weight) in counts.iter().zip(&weights) {
            let (share, all) = (u64::from(*weight) * shards.len() as u64, total.max(1));
            prop_assert!(*count as u64 >= share / all && *count as u64 <= share.div_ceil(all));
        }
        prop_assert_eq!(after.iter().all(|shard| shard.holder.is_some()), total > 0);
        prop_assert_eq!(moved(&after, &settle(&nodes, &after)), 0);
        let mut shuffled = nodes.clone();
        shuffled.rotate_left(usize::try_from(order % nodes.len() as u64).unwrap());
        prop_assert_eq!(moved(&after, &settle(&shuffled, &shards)), 0, "the order of the nodes does not matter");
    }
}
