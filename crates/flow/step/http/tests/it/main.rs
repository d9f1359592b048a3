//! Against a server of our own on loopback that answers by script, well or badly.

mod answer;
mod construct;
mod hostile;
mod request;
mod server;
