//! Short versions of the campaigns: each can be carried out, and shows what it must.

mod hive;
mod pool;
