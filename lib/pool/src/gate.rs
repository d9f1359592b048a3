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
    core: Mutex<Core<K>>,
}

impl<K: Carried> Gate<K> {
    pub fn new(core: Core<K>) -> Gate<K> {
        Gate { core: Mutex::new(core) }
    }

    /// Makes one step and wakes who is to be woken; the other effects are the caller's. No result if the step panicked.
    #[inline]
    pub fn enter<R>(
        &self,
        effects: &mut Effects<K>,
        step: impl FnOnce(&mut Core<K>, &mut Effects<K>) -> R,
    ) -> Option<R> {
        let result = {
            let mut core = lock(&self.core);
            match catch_unwind(AssertUnwindSafe(|| step(&mut core, effects))) {
                Ok(result) => Some(result),
                Err(panic) => {
                    core.broke(&told(&*panic), effects);
                    None
                }
            }
        };
        effects.wake.drain(..).for_each(Waker::wake);
        result
    }
}

fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a step of the pool panicked: {}", text.unwrap_or("without a word"))
}
