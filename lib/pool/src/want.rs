//! What a caller wants.

use std::{sync::Arc, time::Duration};

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
    pub(crate) within: Option<Duration>,
    pub(crate) class: Class,
    pub(crate) on: Option<Arc<Server>>,
    pub(crate) near: Option<Arc<[ServerId]>>,
    pub(crate) idempotent: bool,
}

impl Want {
    /// One deadline for waiting and use together.
    pub fn within(time: Duration) -> Want {
        Want { within: Some(time), ..Want::default() }
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
}
