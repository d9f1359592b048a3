//! Capture on real databases: statements go through the SQLite we are built with, and through the `sqlite3` program of
//! the machine, which is older and made by others.

mod catalogue;
mod drift;
mod install;
mod keys;
mod replace;
mod rows;
mod shop;
