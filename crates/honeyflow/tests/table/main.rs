//! Writes from a SQLite outbox into a table of a real Cassandra, with the binary as a process: under live changes,
//! while the node is killed, and while the cluster is silent. At the end of each test the table equals the database.

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
