//! Simulates a clock step. The server's clock cannot be set, so every stored time moves in the other direction.

use redis::aio::MultiplexedConnection;

use crate::server;

pub async fn step_clock(connection: &MultiplexedConnection, hive: &str, by_ms: i64) {
    let mut step = redis::cmd("EVAL");
    step.arg(include_str!("step_clock.lua")).arg(0).arg(format!("{{hive:{hive}}}")).arg(by_ms);
    server::ask::<()>(connection, &step).await;
}
