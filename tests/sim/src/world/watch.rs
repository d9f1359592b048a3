//! A debugging aid: prints everything that happens to one key on stderr.

use honeyflow_store::{Op, Request};

use super::{World, database::CallEnd};

impl World {
    pub(super) fn watch(&self, key: &str, what: impl FnOnce() -> String) {
        if self.watched.as_deref() == Some(key) {
            eprintln!("{:>12} {:>7} {key}: {}", self.now, self.stats.happenings, what());
        }
    }

    pub(super) fn watch_request(&self, who: usize, store: usize, request: &Request, ends: CallEnd) {
        let Some(key) = self.watched.as_deref() else { return };
        let store = &self.stores[store];
        if let Request::Recover { .. } = request {
            self.watch(key, || format!("incarnation {who} recovers {:?}, {ends:?}", store.journaled(key)));
        }
        let Request::Write(write) = request else { return };
        let holds = store.hive.admits(&write.fence);
        for op in &write.ops {
            let events = match op {
                Op::Settle { events, .. } => events.as_slice(),
                _ => &[],
            };
            let of_key = |id| store.journal.stored.get(id).is_some_and(|event| &*event.key == key);
            let text = format!("{op:?}");
            if text.contains(&format!("\"{key}\"")) || events.iter().any(of_key) {
                self.watch(key, || format!("incarnation {who} writes {text}, {ends:?}, fence holds: {holds}"));
            }
        }
    }

    pub(super) fn watch_polled(&self, polled: &honeyflow_store::PollReply) {
        if let Some(key) = self.watched.as_deref() {
            for event in polled.events.iter().filter(|event| &*event.key == key) {
                self.watch(key, || format!("event {} is read", event.id));
            }
        }
    }
}
