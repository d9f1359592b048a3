//! Providers: where a pool gets its settings from.

use std::{future::Future, pin::Pin};

use super::{Settings, SettingsError};

/// Gives a pool its settings. The pool asks at its start, then once a second and whenever [`Provider::changed`]
/// completes.
///
/// A plain [`Settings`] is a provider that never changes; [`Functions`] turns a function into a provider.
pub trait Provider: Send + Sync + 'static {
    /// # Errors
    /// What is wrong with the current settings; a running pool keeps the ones it has.
    fn settings(&self) -> Result<Settings, SettingsError>;

    /// Completes when the settings have changed, if the provider can tell.
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

/// A function as a provider.
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

/// Applies a planted bug: resets one key to its default, as if the pool did not read it.
#[cfg(feature = "planted")]
pub(crate) fn apply_planted_bug(mut settings: Settings) -> Settings {
    let Some(key) = honeyflow_runtime::planted::current().and_then(|plant| plant.strip_prefix("pool-ignores-")) else {
        return settings;
    };
    match key {
        "translate" => settings.translate = super::Translate::default(),
        "filter" => settings.filter = super::Filter::default(),
        _ => {
            let mut table = settings.table().expect("no functions but in the two above");
            table.remove(key);
            settings = Settings::from_table(&table).expect("a default is good");
        }
    }
    settings
}

#[cfg(not(feature = "planted"))]
pub(crate) fn apply_planted_bug(settings: Settings) -> Settings {
    settings
}
