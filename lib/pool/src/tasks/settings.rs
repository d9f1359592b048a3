//! The settings task: asks the provider once a second, and when the provider reports a change. Settings with an error
//! change nothing; the status shows the error.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{
    connect::Connector,
    control::{Control, Drain, begin_drain},
    core::{DrainTarget, Rules, State},
    settings::{Provider, Settings, SettingsError, Start, apply_planted_bug},
    shared::Shared,
};

const ASK_EVERY: Duration = Duration::from_secs(1);

pub async fn run<C: Connector>(shared: Arc<Shared<C>>, provider: Arc<dyn Provider>) {
    loop {
        super::fail_point("pool-settings-panics");
        tokio::select! {
            () = tokio::time::sleep(ASK_EVERY) => {}
            () = provider.changed() => {}
        }
        let offered = provider.settings().and_then(|settings| settings.check().map(|()| apply_planted_bug(settings)));
        apply(&shared, offered.and_then(|settings| configure_connector(&shared, settings)));
        follow_enabled(&shared);
    }
}

/// Enables or disables the pool when the setting `enabled` changes. Only a change counts, so that an operator's command
/// stays in force. A pool that still drains is enabled after the drain.
fn follow_enabled<C: Connector>(shared: &Arc<Shared<C>>) {
    let (wanted, start) = {
        let settings = shared.settings.load();
        (settings.enabled, settings.start)
    };
    let state = shared.enter(|core, _| core.state());
    match (shared.switched_on.load(Ordering::Relaxed), wanted) {
        // The drain must have begun when this returns; a later enable would otherwise run first and do nothing.
        (true, false) => drop(begin_drain(shared, DrainTarget::Disabled, Drain::as_configured())),
        (false, true) if state == Some(State::Draining(DrainTarget::Disabled)) => return,
        (false, true) if state == Some(State::Disabled) => {
            shared.enable();
            if start == Start::Active {
                shared.activate();
            }
        }
        _ => {}
    }
    shared.switched_on.store(wanted, Ordering::Relaxed);
}

/// Gives the connector its part of the settings, if that has changed. The connector may refuse the settings.
fn configure_connector<C: Connector>(shared: &Shared<C>, settings: Settings) -> Result<Settings, SettingsError> {
    if settings.connector != shared.settings.load().connector {
        shared.connector.configure(&settings.connector)?;
    }
    Ok(settings)
}

fn apply<C: Connector>(shared: &Arc<Shared<C>>, offered: Result<Settings, SettingsError>) {
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
                tracing::warn!(pool = shared.settings.load().name, "{error}; keeping the old settings");
                shared.settings_error.store(Arc::new(Some(error)));
            }
        }
    }
}
