//! The pool's settings on their way to the pool. One of them is for sockets too: how long a sign of life may take is how long
//! the kernel waits for a peer that acknowledges nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use honeyflow_pool::{Provider, Settings, SettingsError};

/// Nothing was heard yet.
const UNHEARD: u64 = 0;

/// In microseconds, shared by who hears and who dials.
#[derive(Debug, Clone, Default)]
pub struct SignOfLife(Arc<AtomicU64>);

impl SignOfLife {
    pub fn within(&self) -> Option<Duration> {
        let heard = self.0.load(Ordering::Relaxed);
        (heard != UNHEARD).then(|| Duration::from_micros(heard))
    }

    fn hear(&self, within: Duration) {
        self.0.store(u64::try_from(within.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

pub struct Overheard<P> {
    pub provider: P,
    pub sign_of_life: SignOfLife,
}

impl<P: Provider> Provider for Overheard<P> {
    fn settings(&self) -> Result<Settings, SettingsError> {
        let settings = self.provider.settings()?;
        // What the pool will refuse changes nothing here either.
        settings.check()?;
        self.sign_of_life.hear(settings.heartbeat_timeout);
        Ok(settings)
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.provider.changed()
    }
}
