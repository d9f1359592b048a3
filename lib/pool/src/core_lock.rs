//! The one lock of the pool, which guards the core. A step completes or breaks the pool: no later step runs on a
//! half-changed core. Waiters are woken after the lock has been released.
//!
//! The tests compile this file a second time, with loom's lock instead of the real one.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

use super::{
    core::{Core, Effects, PooledConnection},
    sync::{Mutex, lock},
};

pub struct CoreLock<K> {
    guarded: Mutex<GuardedCore<K>>,
}

struct GuardedCore<K> {
    core: Core<K>,
    /// Reused for every step, since most steps leave it empty.
    effects: Effects<K>,
}

impl<K: PooledConnection> CoreLock<K> {
    pub fn new(core: Core<K>) -> CoreLock<K> {
        CoreLock { guarded: Mutex::new(GuardedCore { core, effects: Effects::default() }) }
    }

    /// Makes one step and wakes the waiters that it served. Writes the step's result to `result`, which stays unchanged
    /// if the step panicked, and the remaining effects, if there are any, to `rest`. Both are out-parameters because
    /// they are large, and a copy would cost time.
    #[inline]
    pub fn enter<R>(
        &self,
        result: &mut Option<R>,
        rest: &mut Option<Effects<K>>,
        step: impl FnOnce(&mut Core<K>, &mut Effects<K>) -> R,
    ) {
        let (first, more);
        {
            let guarded = &mut *lock(&self.guarded);
            let (core, effects) = (&mut guarded.core, &mut guarded.effects);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| *result = Some(step(core, effects)))) {
                core.break_after_panic(&panic_message(&*panic), effects);
            }
            (first, more) = effects.wake.take();
            if !effects.is_quiet() {
                *rest = Some(std::mem::take(effects));
            }
        }
        if let Some(first) = first {
            first.wake();
            more.into_iter().for_each(Waker::wake);
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a step of the pool panicked: {}", text.unwrap_or("no message"))
}
