//! Several nodes as processes on one outbox: killed, drained and joined under load. Every change is processed, no key
//! is processed by two nodes at once, and versions never decrease.

mod existing;
#[expect(dead_code, reason = "another suite needs the rest")]
#[path = "../fault/http.rs"]
mod http;
mod limit;
#[expect(dead_code, reason = "another suite needs the rest")]
#[path = "../fault/node.rs"]
mod node;
mod postgres;
mod recorder;
mod restore;
mod separate_hive;
mod shop;
#[path = "../fault/wait.rs"]
mod wait;
