//! Codes of the problems that definitions and configuration have in common.

pub mod problem;
