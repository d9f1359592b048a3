//! Tests of capture on real databases: the tests run statements through the SQLite that we are built with, and through
//! the machine's `sqlite3` program, which is older and built by others.

mod catalogue;
mod change;
mod drift;
mod install;
mod keys;
mod replace;
mod rows;
mod shop;
