//! HV-83: the local stock and share, and the end of a term, under every interleaving that loom finds. The files are the shipped ones, compiled here
//! with loom's atomics.

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
#[path = "../../src/limit/stock.rs"]
mod stock;

use end::End;
use gcra::{FullAt, Share};
use loom::{sync::Arc, thread};
use rate::Rate;
use stock::{Batch, Stock};

const NOW: u64 = 1 << 30;
const LATER: u64 = 1 << 40;

/// Three changes of thread in the middle of something show what more would show, in a hundredth of the time.
fn explore(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

/// Two take, one installs the next batch: no permit twice, none lost.
#[test]
fn hv_83_takes_race_with_the_next_batch() {
    explore(|| {
        let stock = Arc::new(Stock::default());
        stock.install(NOW, Batch::new(1, LATER), 0);
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let stock = stock.clone();
                thread::spawn(move || u64::from(stock.take(NOW, 1).is_some()))
            })
            .collect();
        stock.install(NOW, Batch::new(1, LATER + (1 << 20)), 0);
        let taken: u64 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert!(taken <= 2);
        assert_eq!(taken + stock.left(NOW), 2);
    });
}

/// A refund races with the sweep for those who wait: it arrives or it is spent, and never makes two of one.
#[test]
fn hv_83_a_refund_races_with_a_sweep() {
    explore(|| {
        let stock = Arc::new(Stock::default());
        stock.install(NOW, Batch::new(2, LATER), 0);
        let permit = stock.take(NOW, 1).unwrap();
        let refunding = {
            let stock = stock.clone();
            thread::spawn(move || u64::from(stock.put_back(NOW, permit.dies, 1)))
        };
        let swept: u64 = stock.sweep(NOW).iter().map(|batch| batch.count).sum();
        let refunded = refunding.join().unwrap();
        assert_eq!(swept + stock.left(NOW), 1 + refunded);
    });
}

/// A take races with the death of its batch being replaced: what it took came from a batch that lived.
#[test]
fn hv_83_a_dead_batch_gives_nothing_while_it_is_replaced() {
    explore(|| {
        let stock = Arc::new(Stock::default());
        stock.install(NOW, Batch::new(5, NOW + (1 << 20)), 0);
        let taking = {
            let stock = stock.clone();
            thread::spawn(move || u64::from(stock.take(LATER, 1).is_some()))
        };
        stock.install(LATER, Batch::new(1, LATER + (1 << 20)), 0);
        let taken = taking.join().unwrap();
        assert_eq!(taken + stock.left(LATER), 1);
    });
}

/// Two nodes' threads on one share: together no more than the burst.
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

/// Two halves of one permit come back at once, where one fills the share: the other is spent, whoever takes in between.
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

/// A permit is taken while another comes back: until when it may come back itself does not grow by that.
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

/// Whoever works under a term looks at it at its last moment, while a beat is answered: either the beat finds it dead, or
/// nobody was told that it is. What was said stays so.
#[test]
fn hv_83_a_look_at_a_term_races_with_the_beat_that_extends_it() {
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
            assert!(first || !second, "dead once, dead for good");
            assert!(!extended || first, "whoever extends it learns that it was found dead");
        }
        assert_eq!(end.is_after(10), extended);
    });
}

/// A lease is lost while a beat is answered and somebody looks: from the loss on it is dead for everybody.
#[test]
fn hv_83_the_loss_of_a_term_races_with_the_beat_that_extends_it() {
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
        end.now();
        assert!(!end.is_after(5), "lost is lost");
        let (first, second) = looking.join().unwrap();
        assert!(first || !second);
        extending.join().unwrap();
        assert!(!end.is_after(5) && !end.put_off(30));
    });
}
