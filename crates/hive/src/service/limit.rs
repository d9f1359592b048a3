//! The limits of a member. They are drawn by one task for all of them, which begins with the first limit; the heartbeat
//! tells it how many share the limits, when one of them has changed, and that the store has gone.

use std::sync::atomic::Ordering;

use honeyflow_runtime::Failure;
use uuid::Uuid;

use super::{
    Hive,
    shared::{Life, Shared},
};
use crate::{
    contract::NodeId,
    limit::{Config, Definition, Limit, Limits, Service, standing::Standing},
    member::Engaged,
};

impl Hive {
    /// Declares a limit: what it is for all nodes together. Every process may declare it, each in the same words; what
    /// somebody sets later stands until the words change.
    ///
    /// It works for as long as this node is a member.
    ///
    /// ```no_run
    /// # use honeyflow_hive::{Hive, limit::Definition};
    /// # async fn example(hive: &Hive) -> Result<(), Box<dyn std::error::Error>> {
    /// let api = hive.declare(&Definition::parse("api", "1000/s")?)?;
    /// api.key("client-7").try_take(1).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `bad-limit`: numbers that make no sense, or another definition under the same name.
    pub fn declare(&self, definition: &Definition) -> Result<Limit, Failure> {
        self.limits()?.define(definition)
    }

    /// A limit that was declared.
    ///
    /// # Errors
    /// `unknown-limit`: none has this name.
    pub fn limit(&self, name: &str) -> Result<Limit, Failure> {
        let known = self.shared.limits().and_then(|limits| limits.get(name));
        known.ok_or_else(|| {
            let said = format!("there is no limit {name:?} here: declare it with the options, or with Hive::declare");
            Failure::reject("unknown-limit", said)
        })
    }

    /// All limits of this node.
    ///
    /// # Errors
    /// `no-runtime`: the first time, outside a runtime.
    pub fn limits(&self) -> Result<Limits, Failure> {
        if let Some(limits) = self.shared.limits() {
            return Ok(limits.clone());
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            Failure::fatal("no-runtime", "limits are drawn by a task: declare the first one inside a runtime")
        })?;
        let limits = self.shared.begin_limits(|service| {
            let mut life = self.shared.life();
            runtime.spawn(service.run(async move {
                let _ = life.wait_for(|life| matches!(life, Life::Ended(_))).await;
            }));
        });
        Ok(limits.clone())
    }
}

impl Shared {
    pub fn limits(&self) -> Option<&Limits> {
        self.limits.get()
    }

    /// Whatever the heartbeat says meanwhile is either published before it is read here, or told to the limits as well.
    fn begin_limits(&self, spawn: impl FnOnce(Service)) -> &Limits {
        let limits = self.limits.get_or_init(|| {
            // Before the first join nothing is held under any name.
            let node = self.node().unwrap_or(NodeId(Uuid::nil()));
            let mut config = Config::new(self.store().clone(), node);
            config.expected_nodes = self.expected_nodes;
            config.weight = u64::from(self.weight);
            let durable = self.store().capabilities().durable;
            let usual = if durable { Standing::STORE_BUDGET } else { Standing::MEMORY_BUDGET };
            config.store_budget = self.store_budget.unwrap_or(usual);
            let (service, limits) = Service::new(config);
            spawn(service);
            limits
        });
        self.tell_node(limits);
        tell_engaged(limits, self.engaged());
        limits.noticed(self.limits_version.load(Ordering::Acquire));
        limits
    }

    fn tell_node(&self, limits: &Limits) {
        if let Some(node) = self.node() {
            limits.named(node);
        }
    }

    pub fn set_limits_version(&self, version: u64) {
        self.limits_version.store(version, Ordering::Release);
        if let Some(limits) = self.limits() {
            limits.noticed(version);
        }
    }

    pub(super) fn limits_learn_node(&self) {
        if let Some(limits) = self.limits() {
            self.tell_node(limits);
        }
    }

    pub(super) fn limits_learn_engaged(&self, engaged: Engaged) {
        if let Some(limits) = self.limits() {
            tell_engaged(limits, engaged);
        }
    }

    pub fn limits_are_trusted(&self) {
        if let Some(limits) = self.limits() {
            limits.trusted();
        }
    }

    /// Trust has run out: the store has been silent for a while.
    pub fn cut_off_limits(&self) {
        if let Some(limits) = self.limits() {
            limits.cut_off();
        }
    }
}

fn tell_engaged(limits: &Limits, engaged: Engaged) {
    match engaged.count {
        Some(_) => limits.counted(engaged.divisor, engaged.divisor),
        None => limits.rejoined(),
    }
}
