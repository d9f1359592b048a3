//! Limits under faults: the whole limiter of every node with its drawing task, on one simulated clock. The store may be
//! slow, silent or unreachable, lose its rows, or change its clock. Nodes crash, pause and sleep; definitions change.
//!
//! Only the surroundings of the limiter are modelled: network, the store's rows, heartbeat, and the programs that take
//! permits. All admissions are checked afterwards, window by window ([`check`]).

pub mod campaign;
pub mod check;
pub mod history;
mod job;
mod node;
pub mod plan;
mod play;
mod store;
mod world;

pub use check::{Outcome, run, run_plan};
pub use plan::{Fault, Plan};
