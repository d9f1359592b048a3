//! Leases in the database, as far as the suite needs them: a hive in memory decides, and its leases are copied to the
//! table that the store reads.

use std::{sync::Arc, time::SystemTime};

use futures_util::{FutureExt, future::BoxFuture};
use honeyflow_hive::{
    HiveStore, Reply, Request,
    contract::{Capabilities, HIVE_TIME_START_MS},
};
use honeyflow_hive_memory::MemoryHive;
use honeyflow_runtime::Failure;
use sqlx_core::{connection::Connection, query::query};
use sqlx_postgres::PgConnection;
use tokio::sync::Mutex;

pub const TABLES: &str = "create table hive_lease (hive text not null, name text not null, epoch bigint not null,
    holder uuid, primary key (hive, name))";

pub struct TestHive {
    memory: Arc<MemoryHive>,
    connection: Arc<Mutex<PgConnection>>,
}

impl TestHive {
    pub async fn open(url: &str) -> TestHive {
        let now = || {
            let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
            u64::try_from(since_1970).unwrap() - HIVE_TIME_START_MS.cast_unsigned()
        };
        let connection = Arc::new(Mutex::new(PgConnection::connect(url).await.unwrap()));
        TestHive { memory: Arc::new(MemoryHive::new(now)), connection }
    }
}

impl HiveStore for TestHive {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        let (memory, connection) = (Arc::clone(&self.memory), Arc::clone(&self.connection));
        async move {
            let reply = memory.apply(request)?;
            let Reply::View(view) = memory.apply(Request::View)? else { panic!("no view") };
            let mut connection = connection.lock().await;
            for lease in view.leases {
                let put = query(
                    "insert into hive_lease(hive, name, epoch, holder) values ('honeyflow', $1, $2, $3::text::uuid)
                     on conflict (hive, name) do update set epoch = excluded.epoch, holder = excluded.holder",
                );
                let holder = lease.holder.map(|holder| holder.to_string());
                let put = put.bind(lease.name.to_string()).bind(lease.epoch.0.cast_signed()).bind(holder);
                put.execute(&mut *connection).await.unwrap();
            }
            Ok(reply)
        }
        .boxed()
    }

    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }
}
