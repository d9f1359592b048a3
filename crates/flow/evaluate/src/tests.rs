//! In these tests an item that hangs is a closure that waits for a signal: it uses no CPU time and does not sleep.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use honeyflow_conformance::step::{batch, item};
use honeyflow_runtime::Class;
use honeyflow_step::Item;
use serde_json::json;

use super::{Evaluator, Pool};

type Work<T> = super::Work<Item, T>;

/// Long enough for items that do not hang, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A gate that opens once, for all waiting threads.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn wait(&self) {
        let open = self.0.lock().unwrap();
        drop(self.1.wait_while(open, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

fn keyed(key: &str) -> Item {
    item(0, key, json!({}))
}

async fn until_none_abandoned(pool: &Pool) {
    while pool.abandoned() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Work that hangs on keys that begin with `slow` until the gate opens; counts these attempts.
fn hanging(gate: &Arc<Gate>) -> (Work<()>, Arc<AtomicUsize>) {
    let tries = Arc::new(AtomicUsize::new(0));
    let (gate, counted) = (Arc::clone(gate), Arc::clone(&tries));
    let work: Work<()> = Arc::new(move |item| {
        if item.key.starts_with("slow") {
            counted.fetch_add(1, Ordering::SeqCst);
            gate.wait();
        }
        Ok(())
    });
    (work, tries)
}

#[tokio::test]
async fn wf_26_a_panic_fails_its_item_only() {
    let evaluator = Evaluator::new(Arc::new(Pool::new(1)));
    let work: Work<()> = Arc::new(|item| if &*item.key == "b" { panic!("on purpose") } else { Ok(()) });
    let items = Arc::new(batch(vec![keyed("a"), keyed("b"), keyed("c")]));
    let results = evaluator.run(items, TIMEOUT, work).await;
    assert_eq!((&results[0], &results[2]), (&Ok(()), &Ok(())));
    assert_eq!(results[1].as_ref().unwrap_err().code, "panic");
}

#[tokio::test]
async fn wf_16_an_item_too_slow_alone_as_well_is_rejected_and_the_others_are_done() {
    let (pool, gate) = (Arc::new(Pool::new(1)), Arc::new(Gate::default()));
    let evaluator = Evaluator::new(Arc::clone(&pool));
    let (work, tries) = hanging(&gate);
    let items = ["a", "slow", "b", "c"].map(keyed).to_vec();
    let results = evaluator.run(Arc::new(batch(items)), TIMEOUT, work).await;
    let slow = results[1].as_ref().unwrap_err();
    assert_eq!((slow.class, &*slow.code), (Class::Reject, "too-slow"));
    assert!(results.iter().enumerate().all(|(n, result)| n == 1 || result.is_ok()), "{results:?}");
    assert_eq!(tries.load(Ordering::SeqCst), 2, "once among others, once alone");
    assert_eq!(evaluator.abandoned(), 2);
    gate.open();
    until_none_abandoned(&pool).await;
}

#[tokio::test]
async fn wf_16_an_item_that_is_fast_alone_is_done() {
    let pool = Arc::new(Pool::new(1));
    let (gate, tries) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
    let (waits, counted) = (Arc::clone(&gate), Arc::clone(&tries));
    let work: Work<usize> = Arc::new(move |item| {
        if &*item.key == "slow" && counted.fetch_add(1, Ordering::SeqCst) == 0 {
            waits.wait();
        }
        Ok(counted.load(Ordering::SeqCst))
    });
    let evaluator = Evaluator::new(Arc::clone(&pool));
    let results = evaluator.run(Arc::new(batch(vec![keyed("slow"), keyed("b")])), TIMEOUT, work).await;
    assert_eq!(results[0], Ok(2), "the result of the second attempt counts");
    assert!(results[1].is_ok());
    gate.open();
    until_none_abandoned(&pool).await;
}

#[tokio::test]
async fn wf_16_three_distinct_slow_items_are_fatal() {
    let (pool, gate) = (Arc::new(Pool::new(4)), Arc::new(Gate::default()));
    let evaluator = Evaluator::new(Arc::clone(&pool));
    let (work, _) = hanging(&gate);
    let mut classes = Vec::new();
    for key in ["slow1", "slow1", "slow2", "slow3"] {
        let results = evaluator.run(Arc::new(batch(vec![keyed(key)])), TIMEOUT / 2, Arc::clone(&work)).await;
        classes.push(results[0].as_ref().unwrap_err().class);
    }
    assert_eq!(classes, [Class::Reject, Class::Reject, Class::Reject, Class::Fatal]);
    gate.open();
    until_none_abandoned(&pool).await;
}

#[tokio::test]
async fn wf_16_an_item_not_reached_in_time_is_for_a_retry() {
    // another batch occupies the only thread
    let (pool, gate) = (Arc::new(Pool::new(1)), Arc::new(Gate::default()));
    let evaluator = Arc::new(Evaluator::new(Arc::clone(&pool)));
    let (work, tries) = hanging(&gate);
    let (held, slow) = (Arc::clone(&evaluator), Arc::clone(&work));
    let holder = tokio::spawn(async move { held.run(Arc::new(batch(vec![keyed("slow")])), TIMEOUT * 30, slow).await });
    while tries.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let results = evaluator.run(Arc::new(batch(vec![keyed("a")])), Duration::from_millis(20), work).await;
    let waiting = results[0].as_ref().unwrap_err();
    assert_eq!((waiting.class, &*waiting.code), (Class::Retry, "not-reached"));
    assert_eq!(pool.abandoned(), 0, "an item that was not begun abandons no thread");
    gate.open();
    assert_eq!(holder.await.unwrap(), [Ok(())]);
}

#[tokio::test]
async fn wf_16_a_caller_that_goes_away_leaves_a_working_pool() {
    let (pool, gate) = (Arc::new(Pool::new(1)), Arc::new(Gate::default()));
    let evaluator = Evaluator::new(Arc::clone(&pool));
    let (work, tries) = hanging(&gate);
    let hangs = evaluator.run(Arc::new(batch(vec![keyed("slow"), keyed("b")])), TIMEOUT * 30, Arc::clone(&work));
    let begun = async {
        while tries.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = hangs => panic!("it hangs"),
        () = begun => {}
    }
    assert_eq!(pool.abandoned(), 1);
    assert_eq!(evaluator.run(Arc::new(batch(vec![keyed("a")])), TIMEOUT, work).await, [Ok(())]);
    gate.open();
    until_none_abandoned(&pool).await;
}

/// WF-16: every pool knows the number of abandoned threads of the process.
#[tokio::test]
async fn wf_16_pools_count_abandoned_threads_together() {
    let (first, gate) = (Arc::new(Pool::new(1)), Arc::new(Gate::default()));
    let second = Arc::new(first.beside(1));
    for (pool, key) in [(&first, "slow1"), (&second, "slow2")] {
        let (work, _) = hanging(&gate);
        Evaluator::new(Arc::clone(pool)).run(Arc::new(batch(vec![keyed(key)])), TIMEOUT / 4, work).await;
    }
    assert_eq!((first.abandoned(), second.abandoned(), first.abandoned_in_all()), (2, 2, 4));
    gate.open();
    until_none_abandoned(&first).await;
    until_none_abandoned(&second).await;
    assert_eq!(second.abandoned_in_all(), 0);
}
