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

    /// Makes one step and wakes who is to be woken; what else is to be done, if anything, is the caller's. No result if the
    /// step panicked.
    #[inline]
    pub fn enter<R>(&self, step: impl FnOnce(&mut Core<K>, &mut Effects<K>) -> R) -> (Option<R>, Option<Effects<K>>) {
        let (result, wake, rest) = {
            let inside = &mut *lock(&self.inside);
            let (core, effects) = (&mut inside.core, &mut inside.effects);
            let result = match catch_unwind(AssertUnwindSafe(|| step(core, effects))) {
                Ok(result) => Some(result),
                Err(panic) => {
                    core.broke(&told(&*panic), effects);
                    None
                }
            };
            let wake = if effects.wake.is_empty() { None } else { Some(std::mem::take(&mut effects.wake)) };
            let rest = if effects.is_quiet() { None } else { Some(std::mem::take(effects)) };
            (result, wake, rest)
        };
        if let Some(wake) = wake {
            wake.into_iter().for_each(Waker::wake);
        }
        (result, rest)
    }
}

fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a step of the pool panicked: {}", text.unwrap_or("without a word"))
}
