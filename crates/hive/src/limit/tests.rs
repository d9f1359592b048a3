//! Tests of the files that are compiled twice: there they must not be, or loom's build would run them, too.

mod gcra;
mod stock;
