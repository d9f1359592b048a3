//! The model behind the contracts of store and hive, so that their conformance suites can run on it: the model must
//! answer as real backends do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{BoxFuture, ready};
use honeyflow_hive::{Capabilities, HiveStore, contract};
use honeyflow_runtime::Failure;
use honeyflow_store::{Reply, Request, Store};

use crate::model_store::ModelStore;

/// Clones share the model and its clock.
#[derive(Clone)]
pub struct ModelPort {
    shared: Arc<Mutex<(u64, ModelStore)>>,
}

impl Default for ModelPort {
    fn default() -> ModelPort {
        ModelPort { shared: Arc::new(Mutex::new((0, ModelStore::new(1)))) }
    }
}

impl ModelPort {
    /// Locks the model: `(microseconds, store)`.
    pub fn model(&self) -> MutexGuard<'_, (u64, ModelStore)> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for ModelPort {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let mut model = self.model();
        let now = model.0;
        Box::pin(ready(model.1.apply(now, request)))
    }
}

impl HiveStore for ModelPort {
    fn call(&self, request: contract::Request) -> BoxFuture<'static, Result<contract::Reply, Failure>> {
        let mut model = self.model();
        let hive_ms = ModelStore::hive_ms(model.0);
        Box::pin(ready(model.1.hive.apply(hive_ms, request)))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { many_hosts: true, durable: true, doorbell: false }
    }
}
