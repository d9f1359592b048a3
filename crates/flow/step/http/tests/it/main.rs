//! Tests of the step with a test server on loopback that answers by script, correctly or not.

mod answer;
mod construct;
mod hostile;
mod request;
mod server;
