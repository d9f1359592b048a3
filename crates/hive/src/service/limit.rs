//! The limits of a member. One drawing task serves all of them; it starts with the first limit. The heartbeat informs
//! it how many nodes share the limits, when a limit has changed, and when the store does not answer.

use std::sync::atomic::Ordering;

use honeyflow_runtime::Failure;
use uuid::Uuid;

use super::{
    Hive,
    shared::{Membership, Shared},
};
use crate::{
    codes,
    contract::NodeId,
    limit::{Config, Definition, Limit, Limits, Service, store_health::StoreHealth},
    member::Engaged,
};

impl Hive {
    /// Declares a limit for all nodes together. Every process may declare it, each with the same definition. A limit
    /// that an operator sets later stays until the declared definition changes.
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

    /// Returns a limit that was declared.
    ///
    /// # Errors
    /// `unknown-limit`: no limit with this name was declared.
    pub fn limit(&self, name: &str) -> Result<Limit, Failure> {
        let known = self.shared.limits().and_then(|limits| limits.get(name));
        known.ok_or_else(|| {
            let said = format!("there is no limit {name:?} here: declare it with the options, or with Hive::declare");
            Failure::reject(codes::UNKNOWN_LIMIT, said)
        })
    }

    /// Returns all limits of this node.
    ///
    /// # Errors
    /// `no-runtime`: the first call was made outside a runtime.
    pub fn limits(&self) -> Result<Limits, Failure> {
        if let Some(limits) = self.shared.limits() {
            return Ok(limits.clone());
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            Failure::fatal(codes::NO_RUNTIME, "limits are drawn by a task: declare the first one inside a runtime")
        })?;
        let limits = self.shared.begin_limits(|service| {
            let mut life = self.shared.membership();
            runtime.spawn(service.run(async move {
                let _ = life.wait_for(|life| matches!(life, Membership::Ended(_))).await;
            }));
        });
        Ok(limits.clone())
    }
}

impl Shared {
    pub fn limits(&self) -> Option<&Limits> {
        self.limits.get()
    }

    /// Starts the drawing task once. News of the heartbeat that arrives meanwhile is either published before it is read
    /// here, or sent to the limits as well.
    fn begin_limits(&self, spawn: impl FnOnce(Service)) -> &Limits {
        let limits = self.limits.get_or_init(|| {
            // Before the first join the node has no identity, and holds no slots.
            let node = self.node().unwrap_or(NodeId(Uuid::nil()));
            let mut config = Config::new(self.store().clone(), node);
            config.expected_nodes = self.expected_nodes;
            config.weight = u64::from(self.weight);
            let durable = self.store().capabilities().durable;
            let usual = if durable { StoreHealth::STORE_BUDGET } else { StoreHealth::MEMORY_BUDGET };
            config.store_budget = self.store_budget.unwrap_or(usual);
            let (service, limits) = Service::new(config);
            spawn(service);
            limits
        });
        self.tell_node(limits);
        tell_engaged(limits, self.engaged());
        limits.on_limits_version(self.limits_version.load(Ordering::Acquire));
        limits
    }

    fn tell_node(&self, limits: &Limits) {
        if let Some(node) = self.node() {
            limits.set_node(node);
        }
    }

    pub fn set_limits_version(&self, version: u64) {
        self.limits_version.store(version, Ordering::Release);
        if let Some(limits) = self.limits() {
            limits.on_limits_version(version);
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
            limits.on_trust_renewed();
        }
    }

    /// Trust has ended: the store has not answered the heartbeat for some time.
    pub fn cut_off_limits(&self) {
        if let Some(limits) = self.limits() {
            limits.on_trust_lost();
        }
    }
}

fn tell_engaged(limits: &Limits, engaged: Engaged) {
    match engaged.count {
        Some(_) => limits.set_node_counts(engaged.divisor, engaged.divisor),
        None => limits.forget_node_counts(),
    }
}
