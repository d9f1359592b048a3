use std::sync::Arc;

use honeyflow_event::{Changes, Epoch, Kind};

use super::*;

fn event(id: i64, created_ms: i64) -> Arc<Event> {
    Arc::new(Event {
        id,
        format: 1,
        kind: Kind::Row,
        tenant: "".into(),
        entity: "order".into(),
        key: "1".into(),
        priority: honeyflow_event::PRIORITY_DEFAULT,
        workflow: None,
        created_ms,
        dedupe: None,
        traceparent: None,
        root: None,
        change: Changes::UNKNOWN,
        columns: None,
        payload: None,
    })
}

fn item() -> Item {
    Item {
        install_id: 1 << 64,
        entity: "order".into(),
        key: "1".into(),
        stamp: Stamp::new(Epoch(7), 1),
        event: event(5, 1_700_000_000_000),
        input: None,
        context: None,
        phase: 0,
        index: 0,
        attempt: 1,
    }
}

fn batch(workflow: &str, step: &str) -> Batch {
    Batch { workflow: workflow.into(), step: step.into(), items: Vec::new(), timeout: Duration::ZERO }
}

fn key(item: &Item) -> String {
    item.idempotency_key(&batch("charge", "call"))
}

/// RL-23: another owner repeats an attempt with a higher stamp, perhaps in another batch.
#[test]
fn rl_23_the_key_is_the_same_for_all_attempts_and_owners() {
    let again = Item { stamp: Stamp::new(Epoch(8), 9), attempt: 4, input: Some(Arc::new("new".into())), ..item() };
    assert_eq!(key(&again), key(&item()));
    let own = key(&item());
    assert!(own.len() == 32 && own.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)), "{own}");
}

#[test]
fn rl_23_every_part_of_the_key_counts() {
    let others = [
        ("an install", Item { install_id: 2 << 64, ..item() }),
        ("the lower half of an install id", Item { install_id: (1 << 64) + 1, ..item() }),
        ("an event", Item { event: event(6, 1_700_000_000_000), ..item() }),
        ("an event whose number was used before", Item { event: event(5, 1_700_000_000_001), ..item() }),
        ("an entity", Item { entity: "line".into(), ..item() }),
        ("a key", Item { key: "2".into(), ..item() }),
        ("an element", Item { index: 1, ..item() }),
        ("a phase", Item { phase: 1, ..item() }),
    ];
    for (what, other) in others {
        assert_ne!(key(&other), key(&item()), "{what}");
    }
    for other in [batch("refund", "call"), batch("charge", "other")] {
        assert_ne!(item().idempotency_key(&other), key(&item()));
    }
}
