//! The scripts compute the same as the arithmetic of the contract, to the last micro-permit.

use honeyflow_hive::{
    HiveStore, Reply, Request,
    bucket::Bucket,
    contract::limit::{self, Definition, Draw, DrawOutcome, ExactTake, Key, ReservationRequest, Rule},
};
use honeyflow_hive_redis::RedisHive;

use crate::{
    server::{self, Node},
    step_clock::step_clock,
};

const LIMIT: &str = "api";

async fn limit(hive: &RedisHive, request: limit::Request) -> limit::Reply {
    match hive.call(Request::Limit(request)).await.unwrap() {
        Reply::Limit(reply) => reply,
        other => panic!("{other:?}"),
    }
}

/// A xorshift generator: it gives the same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn rule(numbers: &mut Numbers) -> Rule {
    let most = [1, 10, 1_000, 1_000_000, 1_000_000_000];
    let mut drawn = |most: &[u64]| {
        let most = most[usize::try_from(numbers.below(most.len() as u64)).unwrap()];
        1 + numbers.below(most)
    };
    let rule = Rule::rate(drawn(&most), drawn(&[1, 1_000, 60_000, 86_400_000]), drawn(&most));
    // One rule in three allows reservations.
    if numbers.below(3) > 0 { rule } else { Rule::rate(1 + numbers.below(5_000), 1_000, 80 + numbers.below(500)) }
}

async fn define(hive: &RedisHive, name: &str, was: Option<u64>, rule: Rule) -> Definition {
    match limit(hive, limit::Request::Set { limit: name.into(), was, rule, after_ms: 0 }).await {
        limit::Reply::Set { version, effective_ms } => Definition { version, rule, effective_ms },
        other => panic!("{other:?}"),
    }
}

/// HV-61, HV-66: the test draws from the server and from the arithmetic at the same times and compares.
#[tokio::test]
async fn hv_61_scripts_draw_as_the_arithmetic_does() {
    let Some(redis) = honeyflow_services::redis() else { return };
    let connection = server::connection(&redis.url).await;
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    for round in 0..60 {
        let name = server::fresh_name("draw");
        let hive = server::open(&redis.url, &name);
        let rule = rule(&mut numbers);
        let mut definition = define(&hive, LIMIT, None, rule).await;
        // The lineage has just begun, so the bucket begins empty in both.
        let mut bucket: Option<Bucket> = None;
        for step in 0..25 {
            let by_ms = [0, 0, 1, 7, 1_000, 90_000, 86_400_000][usize::try_from(numbers.below(7)).unwrap()];
            if by_ms > 0 {
                step_clock(&connection, &name, by_ms).await;
                let by_ms = by_ms.cast_unsigned();
                definition.effective_ms -= by_ms;
                if let Some(bucket) = &mut bucket {
                    bucket.pool_ms -= by_ms;
                    bucket.reservations.second -= by_ms / 1_000;
                }
            }
            let (want, need) = (numbers.below(1 + 2 * rule.burst_u / limit::MICRO), numbers.below(3));
            let need = need * numbers.below(1 + rule.burst_u / limit::MICRO);
            let reserve = (numbers.below(2) > 0)
                .then(|| ReservationRequest { want: numbers.below(2_000), weight: 1 + numbers.below(3) });
            let draw = Draw { limit: LIMIT.into(), key: Key(7), want, need, reserve };
            let asked = limit::Request::Draw(vec![draw.clone()]);
            let limit::Reply::Drawn { hive_ms, drawn } = limit(&hive, asked).await else { panic!("not drawn") };
            let head = head(&hive).await;
            let fresh = || Bucket::fresh(&definition, rule.pool_u(), head, hive_ms);
            // The server deletes a bucket that has been full for long. A new one is full too, so draws see no
            // difference.
            let bucket = bucket.get_or_insert_with(fresh);
            let expected = rounded(bucket.draw_and_reserve(&definition, &draw, hive_ms));
            let drawn = drawn[0].map(rounded);
            assert_eq!(drawn, Ok(expected), "round {round}, step {step}: {rule:?}, {want} of {need}, then {by_ms}");
        }
    }
}

/// A wait of many thousand years may be a millisecond off, because a double is not more precise there.
fn rounded(drawn: DrawOutcome) -> DrawOutcome {
    let retry_ms = drawn.retry_ms.map(|wait_ms| if wait_ms < 1 << 53 { wait_ms } else { u64::MAX });
    DrawOutcome { retry_ms, ..drawn }
}

async fn head(hive: &RedisHive) -> u64 {
    match hive.call(Request::View).await.unwrap() {
        Reply::View(view) => view.head.lineage_ms,
        other => panic!("{other:?}"),
    }
}

/// HV-65: the same comparison for exact takes.
#[tokio::test]
async fn hv_65_scripts_take_as_the_arithmetic_does() {
    let Some(redis) = honeyflow_services::redis() else { return };
    let connection = server::connection(&redis.url).await;
    let mut numbers = Numbers(0xD1B5_4A32_D192_ED03);
    let mut admitted = 0;
    for round in 0..60 {
        let name = server::fresh_name("exact");
        let hive = server::open(&redis.url, &name);
        let rule = rule(&mut numbers);
        let mut definition = define(&hive, LIMIT, None, rule).await;
        let mut bucket: Option<Bucket> = None;
        for step in 0..25 {
            let by_ms = [0, 1, 7, 1_000, 90_000, 86_400_000][usize::try_from(numbers.below(6)).unwrap()];
            if by_ms > 0 {
                step_clock(&connection, &name, by_ms).await;
                definition.effective_ms -= by_ms.cast_unsigned();
                if let Some(bucket) = &mut bucket {
                    bucket.pool_ms -= by_ms.cast_unsigned();
                    bucket.reservations.second -= by_ms.cast_unsigned() / 1_000;
                }
            }
            let part = 1 + numbers.below(4);
            let cost = numbers.below(2 + rule.burst_u / limit::MICRO / part);
            let take = ExactTake { limit: LIMIT.into(), key: Key(7), cost, window: None };
            let lineage_ms = head(&hive).await;
            // Only an admission reports its time; a refusal leaves the bucket as it was.
            let reply = limit(&hive, limit::Request::Exact { takes: vec![take], peek: false }).await;
            let limit::Reply::Admitted { hive_ms, left } = reply else { continue };
            let fresh = || Bucket::fresh(&definition, rule.burst_u, lineage_ms, hive_ms);
            let bucket = bucket.get_or_insert_with(fresh);
            assert_eq!(
                bucket.check_take(&definition, cost, None, hive_ms),
                Ok(()),
                "round {round}, step {step}: {rule:?}"
            );
            bucket.take(cost);
            assert_eq!(left, [bucket.left(hive_ms)], "round {round}, step {step}: {rule:?}, cost {cost}");
            admitted += 1;
        }
    }
    assert!(admitted > 300, "{admitted}");
}

/// HV-66: the total ever issued exceeds the exact range of a double within a day of heavy use.
#[tokio::test]
async fn hv_66_what_was_issued_is_counted_beyond_doubles() {
    let Some(redis) = honeyflow_services::redis() else { return };
    let name = server::fresh_name("issued");
    let node = Node::join(server::open(&redis.url, &name)).await;
    define(&node.hive, LIMIT, None, Rule::rate(1_000, 1, 1_000)).await;
    // After this step no lost reservation can still be in force.
    step_clock(&server::connection(&redis.url).await, &name, 5_000).await;
    let draw = || Draw { limit: LIMIT.into(), key: Key(1), want: 1, need: 1, reserve: None };
    let drawn = async || match limit(&node.hive, limit::Request::Draw(vec![draw()])).await {
        limit::Reply::Drawn { drawn, .. } => drawn[0].unwrap().granted,
        other => panic!("{other:?}"),
    };
    let bucket = format!("{{hive:{name}}}:limit:{LIMIT}:{}", Key(1));
    // The bucket may begin empty; it holds a permit within a millisecond.
    while drawn().await == 0 {}
    let odd = (1_u64 << 53) + 1;
    server::send_command(&redis.url, &["HSET", &bucket, "issued_u", &odd.to_string()]).await;
    while drawn().await == 0 {}
    let ledger = limit(&node.hive, limit::Request::Ledger { limit: LIMIT.into(), max: 1 }).await;
    let limit::Reply::Ledger(rows) = ledger else { panic!("{ledger:?}") };
    assert_eq!(rows[0].issued_u, odd + limit::MICRO);
    let most = Rule { rate_u: 1, period_ms: 1, burst_u: (1 << 53) + 1 };
    let set = limit::Request::Set { limit: "large".into(), was: None, rule: most, after_ms: 0 };
    assert_eq!(node.hive.call(Request::Limit(set)).await.unwrap_err().code, "limit-too-large");
}
