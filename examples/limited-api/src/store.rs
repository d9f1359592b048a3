//! Opens the store that the scheme of an address names.

use std::{path::Path, sync::Arc};

use honeyflow_hive::{HiveStore, contract::HIVE};
use honeyflow_runtime::Failure;

pub async fn open(url: &str) -> Result<Arc<dyn HiveStore>, Failure> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "redis" | "rediss" => honeyflow_hive_redis::open(url).await,
        "postgres" | "postgresql" => honeyflow_hive_postgres::open(url).await,
        "mysql" | "mariadb" => honeyflow_hive_mysql::open(url).await,
        "sqlite" => {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            Ok(Arc::new(honeyflow_hive_sqlite::make(Path::new(path), HIVE)?))
        }
        _ => {
            let known = "redis://, postgres://, mysql:// or, on one machine, sqlite:PATH";
            Err(Failure::fatal("unknown-url", format!("unknown store scheme {scheme:?}; use {known}")))
        }
    }
}
