//! Drives the built binary the way people do: what is typed, what is printed where, and the exit code.

mod check;
mod folder;
mod guide;
mod init;
mod rebuild;
mod source;
mod usage;
mod wait;
