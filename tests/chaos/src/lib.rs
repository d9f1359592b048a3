//! Real processes under real faults. `embedded`: a node is killed again and again while an application goes on, and at
//! the end every document must equal its row. `hive`: leaders are paused beyond their lease, cut off and told the wrong
//! time, and nothing that they write afterwards may be accepted. `pool`: servers die, fall silent and talk nonsense under
//! a session's load, and afterwards its pool must be whole.

pub mod embedded;
pub mod hive;
mod node;
pub mod pool;
pub mod proxy;
