//! Tests of `gcra.rs` and `local_permits.rs`. They are not in those files, because loom's build compiles those files a
//! second time and would run the tests, too.

mod gcra;
mod local_permits;
