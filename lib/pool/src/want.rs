//! What a caller wants.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use honeyflow_runtime::Moment;

use crate::{
    core::Class,
    server::{Server, ServerId},
};

/// How a request is to be served. The default is what the settings say.
///
/// ```
/// use std::time::Duration;
/// use honeyflow_pool::{Class, Want};
///
/// let want = Want::within(Duration::from_secs(2)).priority(Class::High).idempotent();
/// ```
#[derive(Clone, Default, Debug)]
pub struct Want {
    /// In microseconds, rounded up: a request moves through many hands, and one word is moved most easily.
    within: Option<NonZeroU64>,
    pub(crate) class: Class,
    pub(crate) on: Option<Arc<Server>>,
    pub(crate) near: Option<Arc<[ServerId]>>,
    pub(crate) idempotent: bool,
}

impl Want {
    /// One deadline for waiting and use together.
    #[inline]
    pub fn within(time: Duration) -> Want {
        let below_a_second = u64::from(time.subsec_nanos().div_ceil(1000));
        let micros = time.as_secs().saturating_mul(1_000_000).saturating_add(below_a_second);
        Want { within: Some(NonZeroU64::new(micros).unwrap_or(NonZeroU64::MIN)), ..Want::default() }
    }

    #[must_use]
    pub fn priority(self, class: Class) -> Want {
        Want { class, ..self }
    }

    /// This server or an error.
    #[must_use]
    pub fn on(self, server: &Server) -> Want {
        Want { on: Some(Arc::new(server.clone())), ..self }
    }

    /// Rather one of these, if one is free: those that hold the data.
    #[must_use]
    pub fn near(self, servers: impl Into<Arc<[ServerId]>>) -> Want {
        Want { near: Some(servers.into()), ..self }
    }

    /// Doing it twice is the same as doing it once: it may be tried elsewhere, even twice at a time.
    #[must_use]
    pub fn idempotent(self) -> Want {
        Want { idempotent: true, ..self }
    }

    /// The time it has, `usual` if it says nothing.
    pub(crate) fn time_or(&self, usual: Duration) -> Duration {
        self.within.map_or(usual, |micros| Duration::from_micros(micros.get()))
    }

    /// When it is due if it comes now.
    #[inline]
    pub(crate) fn due(&self, now: Moment, usual: Duration) -> Moment {
        self.within.map_or_else(|| now.after(usual), |micros| Moment(now.0.saturating_add(micros.get())))
    }
}
