//! Several nodes on one outbox, as processes: killed, drained and joined under load. Whatever happens to nodes, every
//! change is done, no key is worked on twice at once, and versions never fall.

mod elsewhere;
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
mod shop;
#[path = "../fault/wait.rs"]
mod wait;
