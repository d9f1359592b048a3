//! The conformance suite of the hive on Redis.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use futures_util::future::BoxFuture;
use honeyflow_conformance::hive::Rig;
use honeyflow_hive::{Capabilities, HiveStore, Reply, Request};
use honeyflow_hive_redis::RedisHive;
use honeyflow_runtime::Failure;
use redis::aio::MultiplexedConnection;

use crate::{server, step_clock::step_clock};

struct Redis {
    url: String,
    /// A prefix of every hive's name, because all tests share the server.
    run: String,
    connection: MultiplexedConnection,
    opened: Mutex<BTreeSet<String>>,
}

async fn fresh() -> Option<Redis> {
    let url = honeyflow_services::redis()?.url;
    let connection = server::connection(&url).await;
    Some(Redis { url, run: server::fresh_name("suite"), connection, opened: Mutex::default() })
}

/// A hive whose lineage wait is over. An empty Redis counts as one that has lost everything. The suite begins after
/// that wait: this store ends it as soon as the first join has made the hive.
struct StoreAfterWait {
    hive: Arc<RedisHive>,
    view: String,
    connection: MultiplexedConnection,
}

impl HiveStore for StoreAfterWait {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let asked = self.hive.call(request);
        let (view, connection) = (self.view.clone(), self.connection.clone());
        Box::pin(async move {
            let mut reply = asked.await?;
            if let Reply::Joined(status) = &mut reply
                && status.head.version == 1
            {
                assert!(status.head.lineage_ms > 0, "an empty Redis requires a wait");
                server::ask::<()>(&connection, redis::cmd("HSET").arg(view).arg("lineage_ms").arg(0)).await;
                status.head.lineage_ms = 0;
            }
            Ok(reply)
        })
    }

    fn capabilities(&self) -> Capabilities {
        self.hive.capabilities()
    }
}

impl Redis {
    fn hives(&self) -> BTreeSet<String> {
        self.opened.lock().unwrap().clone()
    }
}

impl Rig for Redis {
    fn open<'a>(&'a self, hive: &'a str) -> BoxFuture<'a, Arc<dyn HiveStore>> {
        let name = format!("{}-{hive}", self.run);
        let store = StoreAfterWait {
            hive: Arc::new(server::open(&self.url, &name)),
            view: format!("{{hive:{name}}}:view"),
            connection: self.connection.clone(),
        };
        self.opened.lock().unwrap().insert(name);
        let store: Arc<dyn HiveStore> = Arc::new(store);
        Box::pin(std::future::ready(store))
    }

    fn step_clock(&self, by_ms: i64) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            for hive in self.hives() {
                step_clock(&self.connection, &hive, by_ms).await;
            }
            true
        })
    }

    fn change_lineage(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            for hive in self.hives() {
                let view = format!("{{hive:{hive}}}:view");
                if server::ask::<bool>(&self.connection, redis::cmd("EXISTS").arg(&view)).await {
                    server::ask::<()>(&self.connection, redis::cmd("HSET").arg(&view).arg("lineage").arg("another"))
                        .await;
                }
            }
            true
        })
    }

    fn write_newer_event(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            for hive in self.hives() {
                let mut write = redis::cmd("EVAL");
                write.arg(include_str!("newer_event.lua")).arg(1).arg(format!("{{hive:{hive}}}:event"));
                server::ask::<()>(&self.connection, &write).await;
            }
            true
        })
    }

    fn wipe(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let all = format!("{{hive:{}-*", self.run);
            let keys: Vec<String> = server::ask(&self.connection, redis::cmd("KEYS").arg(all)).await;
            server::ask::<()>(&self.connection, redis::cmd("DEL").arg(keys)).await;
            true
        })
    }

    fn holds_after_restore(&self) -> bool {
        false
    }
}

honeyflow_conformance::hive_suite!(maybe fresh);
