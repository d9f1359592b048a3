//! The options of one request: deadline, priority, server, idempotence.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use honeyflow_runtime::Moment;

use crate::{
    core::Class,
    server::{Server, ServerId},
};

/// How to serve one request. The default follows the settings.
///
/// ```
/// use std::time::Duration;
/// use honeyflow_pool::{Class, RequestOptions};
///
/// let options = RequestOptions::within(Duration::from_secs(2)).priority(Class::High).idempotent();
/// ```
#[derive(Clone, Default, Debug)]
pub struct RequestOptions {
    /// The time limit in microseconds, rounded up. One machine word, because requests are moved often.
    within: Option<NonZeroU64>,
    pub(crate) class: Class,
    pub(crate) on: Option<Arc<Server>>,
    pub(crate) near: Option<Arc<[ServerId]>>,
    pub(crate) idempotent: bool,
}

impl RequestOptions {
    /// Sets one time limit for waiting and use together.
    #[inline]
    pub fn within(time: Duration) -> RequestOptions {
        let below_a_second = u64::from(time.subsec_nanos().div_ceil(1000));
        let micros = time.as_secs().saturating_mul(1_000_000).saturating_add(below_a_second);
        RequestOptions { within: Some(NonZeroU64::new(micros).unwrap_or(NonZeroU64::MIN)), ..RequestOptions::default() }
    }

    #[must_use]
    pub fn priority(self, class: Class) -> RequestOptions {
        RequestOptions { class, ..self }
    }

    /// Uses this server only; the request fails if it is down.
    #[must_use]
    pub fn on(self, server: &Server) -> RequestOptions {
        RequestOptions { on: Some(Arc::new(server.clone())), ..self }
    }

    /// Prefers these servers if one has a free connection, for example those that hold the data.
    #[must_use]
    pub fn near(self, servers: impl Into<Arc<[ServerId]>>) -> RequestOptions {
        RequestOptions { near: Some(servers.into()), ..self }
    }

    /// Declares that executing the request twice is the same as once. The pool may then retry it on another server, and
    /// run it on two servers at the same time.
    #[must_use]
    pub fn idempotent(self) -> RequestOptions {
        RequestOptions { idempotent: true, ..self }
    }

    /// The time limit, or `usual` if there is none.
    pub(crate) fn time_or(&self, usual: Duration) -> Duration {
        self.within.map_or(usual, |micros| Duration::from_micros(micros.get()))
    }

    /// The deadline of a request that starts now.
    #[inline]
    pub(crate) fn due(&self, now: Moment, usual: Duration) -> Moment {
        self.within.map_or_else(|| now.after(usual), |micros| Moment(now.0.saturating_add(micros.get())))
    }
}
