//! HV-83: tests the local permits, the share and the end of a term under every interleaving that loom finds. The tested
//! files are the shipped ones, compiled here with loom's atomics.

mod atomic {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}
#[allow(dead_code, reason = "the product uses all of it, these tests a part")]
#[path = "../../src/term/end.rs"]
mod end;
#[allow(dead_code, reason = "the product uses all of it, these tests a part")]
#[path = "../../src/limit/gcra.rs"]
mod gcra;
mod rate {
    pub use honeyflow_hive::limit::rate::Rate;
}
#[allow(dead_code, reason = "the product uses all of it, these tests a part")]
#[path = "../../src/limit/local_permits.rs"]
mod local_permits;

use end::End;
use gcra::{FullAt, Share};
use local_permits::{Batch, LocalPermits};
use loom::{sync::Arc, thread};
use rate::Rate;

const NOW: u64 = 1 << 30;
const LATER: u64 = 1 << 40;

/// Explores interleavings with at most three preemptions. They find the same bugs as more, in a hundredth of the time.
fn explore(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

/// Two threads take while a third installs the next batch: no permit is given twice, none is lost.
#[test]
fn hv_83_takes_race_with_the_next_batch() {
    explore(|| {
        let local = Arc::new(LocalPermits::default());
        local.install(NOW, Batch::new(1, LATER), 0);
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let local = local.clone();
                thread::spawn(move || u64::from(local.take(NOW, 1).is_some()))
            })
            .collect();
        local.install(NOW, Batch::new(1, LATER + (1 << 20)), 0);
        let taken: u64 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert!(taken <= 2);
        assert_eq!(taken + local.available(NOW), 2);
    });
}

/// A refund races with `take_all` for the waiters: it arrives or is spent, and never doubles a permit.
#[test]
fn hv_83_a_refund_races_with_taking_all_batches() {
    explore(|| {
        let local = Arc::new(LocalPermits::default());
        local.install(NOW, Batch::new(2, LATER), 0);
        let permit = local.take(NOW, 1).unwrap();
        let refunding = {
            let local = local.clone();
            thread::spawn(move || u64::from(local.put_back(NOW, permit.expires, 1)))
        };
        let taken_out: u64 = local.take_all(NOW).iter().map(|batch| batch.count).sum();
        let refunded = refunding.join().unwrap();
        assert_eq!(taken_out + local.available(NOW), 1 + refunded);
    });
}

/// A take races with the replacement of an expired batch: it takes only from a batch that has not expired.
#[test]
fn hv_83_an_expired_batch_gives_nothing_while_it_is_replaced() {
    explore(|| {
        let local = Arc::new(LocalPermits::default());
        local.install(NOW, Batch::new(5, NOW + (1 << 20)), 0);
        let taking = {
            let local = local.clone();
            thread::spawn(move || u64::from(local.take(LATER, 1).is_some()))
        };
        local.install(LATER, Batch::new(1, LATER + (1 << 20)), 0);
        let taken = taking.join().unwrap();
        assert_eq!(taken + local.available(LATER), 1);
    });
}

/// Two threads take from one share: together they get no more than the burst.
#[test]
fn hv_83_takes_of_a_share_race() {
    explore(|| {
        let full_at = Arc::new(FullAt::default());
        let share = Share::new(Rate::per_second(1), 1, 2, 0);
        let now = 10_000_000_000;
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let full_at = full_at.clone();
                thread::spawn(move || (0..2).filter(|_| full_at.take(&share, now, 1).is_ok()).count())
            })
            .collect();
        let taken: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(taken, 2);
    });
}

/// Two parts of one take are put back at once, and the first one fills the share. The other one is spent, also if a
/// thread takes in between.
#[test]
fn hv_83_refunds_of_a_share_race() {
    explore(|| {
        let full_at = Arc::new(FullAt::default());
        let share = Share::new(Rate::per_second(1), 1, 2, 0);
        let taken = full_at.take(&share, 10_000_000_000, 2).unwrap();
        let now = 11_200_000_000;
        let refunding: Vec<_> = (0..2)
            .map(|_| {
                let full_at = full_at.clone();
                thread::spawn(move || full_at.put_back(&share, taken, now, 1))
            })
            .collect();
        let take_all = || (0..3).filter(|_| full_at.take(&share, now, 1).is_ok()).count();
        let early = take_all();
        refunding.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(early + take_all(), 2);
    });
}

/// A take races with a refund: the refund does not extend the time until which the taken permit may be put back.
#[test]
fn hv_83_a_take_of_a_share_races_with_a_refund() {
    explore(|| {
        let full_at = Arc::new(FullAt::default());
        let share = Share::new(Rate::per_second(1), 1, 3, 0);
        let first = full_at.take(&share, 10_000_000_000, 1).unwrap();
        let refunding = {
            let full_at = full_at.clone();
            thread::spawn(move || full_at.put_back(&share, first, 10_500_000_000, 1))
        };
        let second = full_at.take(&share, 10_500_000_000, 1).unwrap();
        refunding.join().unwrap();
        let now = 11_200_000_000;
        let take_all = || (0..4).filter(|_| full_at.take(&share, now, 1).is_ok()).count();
        let early = take_all();
        full_at.put_back(&share, second, now, 1);
        assert_eq!(early + take_all(), 3);
    });
}

/// A worker checks its term at the last moment, while a heartbeat is answered. Either the heartbeat finds that the term
/// has ended, or no check has returned that. A check never returns false and then true.
#[test]
fn hv_83_a_check_of_a_term_races_with_the_heartbeat_that_extends_it() {
    explore(|| {
        let end = Arc::new(End::at(10));
        let looks: Vec<_> = (0..2)
            .map(|_| {
                let end = end.clone();
                thread::spawn(move || (end.is_after(10), end.is_after(10)))
            })
            .collect();
        let extended = end.put_off(20);
        for look in looks {
            let (first, second) = look.join().unwrap();
            assert!(first || !second, "an ended term stays ended");
            assert!(!extended || first, "a heartbeat cannot extend a term that a check has found ended");
        }
        assert_eq!(end.is_after(10), extended);
    });
}

/// A lease is lost while a heartbeat is answered and a worker checks its term: after the loss it has ended for all
/// threads.
#[test]
fn hv_83_the_loss_of_a_term_races_with_the_heartbeat_that_extends_it() {
    explore(|| {
        let end = Arc::new(End::at(10));
        let extending = {
            let end = end.clone();
            thread::spawn(move || end.put_off(20))
        };
        let looking = {
            let end = end.clone();
            thread::spawn(move || (end.is_after(5), end.is_after(5)))
        };
        end.end_now();
        assert!(!end.is_after(5), "a lost term has ended");
        let (first, second) = looking.join().unwrap();
        assert!(first || !second);
        extending.join().unwrap();
        assert!(!end.is_after(5) && !end.put_off(30));
    });
}
