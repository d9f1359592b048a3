//! Settings: asked for once a second and when the provider says so. Bad ones change nothing and are shown.

use std::{sync::Arc, time::Duration};

use crate::{
    connect::Connector,
    core::Rules,
    settings::{Provider, Settings, SettingsError, heeded},
    shared::Shared,
};

const ASK_EVERY: Duration = Duration::from_secs(1);

pub async fn run<C: Connector>(shared: Arc<Shared<C>>, provider: Arc<dyn Provider>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(ASK_EVERY) => {}
            () = provider.changed() => {}
        }
        let offered = provider.settings().and_then(|settings| settings.check().map(|()| heeded(settings)));
        take(&shared, offered.and_then(|settings| told(&shared, settings)));
    }
}

/// The connector has the last word on its own part, and hears of it only when it has changed.
fn told<C: Connector>(shared: &Shared<C>, settings: Settings) -> Result<Settings, SettingsError> {
    if settings.connector != shared.settings.load().connector {
        shared.connector.configure(&settings.connector)?;
    }
    Ok(settings)
}

fn take<C: Connector>(shared: &Arc<Shared<C>>, offered: Result<Settings, SettingsError>) {
    match offered {
        Ok(settings) => {
            if shared.settings_error.load().is_some() {
                shared.settings_error.store(Arc::new(None));
            }
            if settings == **shared.settings.load() {
                return;
            }
            let rules = Rules::from(&settings);
            shared.settings.store(Arc::new(settings));
            let now = shared.now();
            shared.enter(|core, effects| core.set_rules(rules, now, effects));
            shared.signals.discovery.notify_one();
        }
        Err(error) => {
            if shared.settings_error.load().as_ref().as_ref() != Some(&error) {
                tracing::warn!(pool = shared.settings.load().name, "{error}; the old ones stay");
                shared.settings_error.store(Arc::new(Some(error)));
            }
        }
    }
}
