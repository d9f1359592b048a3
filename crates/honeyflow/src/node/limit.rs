//! The limits of the configuration, declared in the hive that all nodes share: steps wait for them, the door refuses.

use honeyflow_api::DoorLimit;
use honeyflow_engine::shell::limit::{Limited, Limits};
use honeyflow_hive::{Hive, limit::Limit};
use honeyflow_runtime::Failure;

use crate::config::{Config, LimitConfig};

/// By the configuration's order.
pub struct Declared(Vec<(LimitConfig, Limit)>);

impl Declared {
    /// # Errors
    /// If the hive cannot have them.
    pub fn new(config: &Config, hive: &Hive) -> Result<Declared, Failure> {
        let declared = config.limits.iter().map(|limit| Ok((limit.clone(), hive.declare(&limit.definition)?)));
        declared.collect::<Result<_, Failure>>().map(Declared)
    }

    pub fn for_steps(&self) -> Limits {
        let limited = |(config, limit): &(LimitConfig, Limit)| {
            (limit.name().clone(), Limited { limit: limit.clone(), shadow: config.shadow })
        };
        self.0.iter().map(limited).collect()
    }

    pub fn for_door(&self, config: &Config) -> Option<DoorLimit> {
        let name = config.node.limit.as_ref()?;
        let (config, limit) = self.0.iter().find(|(_, limit)| limit.name() == name)?;
        Some(DoorLimit {
            limit: limit.clone(),
            key: config.key.clone(),
            shadow: config.shadow,
            old_fields: config.old_headers,
        })
    }
}
