//! The one lock. A step is made whole or the pool is broken: nobody ever works on with a half-made one. Whoever is to be
//! woken is woken after the lock has been released.
//!
//! This file is compiled a second time by the tests, with loom's lock in the place of the real one.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

use super::{
    core::{Carried, Core, Effects},
    sync::{Mutex, lock},
};

pub struct Gate<K> {
    inside: Mutex<Inside<K>>,
}

struct Inside<K> {
    core: Core<K>,
    /// Used again and again: most steps leave nothing in it.
    effects: Effects<K>,
}

impl<K: Carried> Gate<K> {
    pub fn new(core: Core<K>) -> Gate<K> {
        Gate { inside: Mutex::new(Inside { core, effects: Effects::default() }) }
    }

    /// Makes one step and wakes who is to be woken. What came of it is written to `result`, which stays as it is if the
    /// step panicked; what else is to be done goes to `rest`, if there is anything. Both are written where they are wanted:
    /// they are large enough for every copy of them to be felt.
    #[inline]
    pub fn enter<R>(
        &self,
        result: &mut Option<R>,
        rest: &mut Option<Effects<K>>,
        step: impl FnOnce(&mut Core<K>, &mut Effects<K>) -> R,
    ) {
        let (first, more);
        {
            let inside = &mut *lock(&self.inside);
            let (core, effects) = (&mut inside.core, &mut inside.effects);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| *result = Some(step(core, effects)))) {
                core.broke(&told(&*panic), effects);
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

fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a step of the pool panicked: {}", text.unwrap_or("without a word"))
}
