//! Where settings come from.

use std::{future::Future, pin::Pin};

use super::{Settings, SettingsError};

/// Gives a pool its settings: asked when it starts, then once a second and whenever [`Provider::changed`] ends.
///
/// A plain [`Settings`] is one that never changes; [`Functions`] makes one of a function.
pub trait Provider: Send + Sync + 'static {
    /// # Errors
    /// What is wrong with the settings as they are now; a running pool keeps the ones it has.
    fn settings(&self) -> Result<Settings, SettingsError>;

    /// Ends when there is something new, if the provider can tell.
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

impl Provider for Settings {
    fn settings(&self) -> Result<Settings, SettingsError> {
        Ok(self.clone())
    }
}

impl<P: Provider + ?Sized> Provider for std::sync::Arc<P> {
    fn settings(&self) -> Result<Settings, SettingsError> {
        (**self).settings()
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        (**self).changed()
    }
}

/// A function as provider.
///
/// ```
/// use honeyflow_pool::{Functions, Provider, Settings};
///
/// let by_load = Functions(|| Ok(Settings { connections_per_server: Some(4), ..Settings::default() }));
/// assert_eq!(by_load.settings().unwrap().connections_per_server, Some(4));
/// ```
pub struct Functions<F>(pub F);

impl<F: Fn() -> Result<Settings, SettingsError> + Send + Sync + 'static> Provider for Functions<F> {
    fn settings(&self) -> Result<Settings, SettingsError> {
        (self.0)()
    }
}
