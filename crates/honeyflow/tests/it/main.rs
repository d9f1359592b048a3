//! Runs the binary as users do, and checks its output and exit code.

mod check;
mod event_wait;
mod explain_code;
mod folder;
mod guide;
mod help;
mod init;
mod postgres;
mod rebuild;
mod source;
mod start;
mod usage;
