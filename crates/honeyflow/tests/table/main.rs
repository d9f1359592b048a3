//! From a SQLite outbox into a table of a real Cassandra, by the built binary as a process: live, while it is killed,
//! and while the cluster is silent. Each test ends with every row of the table equal to its row in the database.

mod check;
mod cluster;
#[expect(dead_code, reason = "another suite needs the rest")]
#[path = "../fault/http.rs"]
mod http;
mod live;
#[path = "../fault/namespace.rs"]
mod namespace;
#[expect(dead_code, reason = "another suite needs the rest")]
#[path = "../fault/node.rs"]
mod node;
mod outage;
mod pool;
mod proxy;
#[expect(dead_code, reason = "another suite needs the rest")]
#[path = "../fault/shop.rs"]
mod shop;
#[path = "../fault/wait.rs"]
mod wait;
