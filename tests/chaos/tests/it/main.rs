//! Every campaign, short: that it can be carried out, and what it must show.

mod hive;
mod pool;
