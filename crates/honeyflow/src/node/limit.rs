//! Declares the limits of the configuration in the hive that all nodes share. Steps wait for a permit; the event
//! endpoint refuses requests above the limit.

use honeyflow_api::EventLimit;
use honeyflow_engine::shell::limit::{StepLimit, StepLimits};
use honeyflow_hive::{Hive, limit::Limit};
use honeyflow_runtime::Failure;

use crate::config::{Config, LimitConfig};

/// The declared limits, in the order of the configuration.
pub struct DeclaredLimits(Vec<(LimitConfig, Limit)>);

impl DeclaredLimits {
    /// # Errors
    /// If the hive refuses a limit.
    pub fn new(config: &Config, hive: &Hive) -> Result<DeclaredLimits, Failure> {
        let declared = config.limits.iter().map(|limit| Ok((limit.clone(), hive.declare(&limit.definition)?)));
        declared.collect::<Result<_, Failure>>().map(DeclaredLimits)
    }

    pub fn for_steps(&self) -> StepLimits {
        let limited = |(config, limit): &(LimitConfig, Limit)| {
            (limit.name().clone(), StepLimit { limit: limit.clone(), shadow: config.shadow })
        };
        self.0.iter().map(limited).collect()
    }

    pub fn for_event_endpoint(&self, config: &Config) -> Option<EventLimit> {
        let name = config.node.limit.as_ref()?;
        let (config, limit) = self.0.iter().find(|(_, limit)| limit.name() == name)?;
        Some(EventLimit {
            limit: limit.clone(),
            key: config.key.clone(),
            shadow: config.shadow,
            legacy_headers: config.old_headers,
        })
    }
}
