//! Settings: asked for once a second and when the provider says so. Bad ones change nothing and are shown.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{
    connect::Connector,
    control::{Control, Drain, begin},
    core::{Next, Rules, State},
    settings::{Provider, Settings, SettingsError, Start, heeded},
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
        let offered = provider.settings().and_then(|settings| settings.check().map(|()| heeded(settings)));
        take(&shared, offered.and_then(|settings| told(&shared, settings)));
        follow(&shared);
    }
}

/// Switched off and on by the settings: only a change counts, so that what people command meanwhile stays. A pool that is
/// still on its way down is switched on when it is there.
fn follow<C: Connector>(shared: &Arc<Shared<C>>) {
    let (wanted, start) = {
        let settings = shared.settings.load();
        (settings.enabled, settings.start)
    };
    let state = shared.enter(|core, _| core.state());
    match (shared.switched_on.load(Ordering::Relaxed), wanted) {
        // Begun here: if it were only on its way, switching on would find nothing to do, and come before it.
        (true, false) => drop(begin(shared, Next::Disabled, Drain::as_configured())),
        (false, true) if state == Some(State::Draining(Next::Disabled)) => return,
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
