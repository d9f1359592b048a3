//! The binary. What was typed is read in [`cli`]; what the file says in [`config`]; adapters are known to [`registry`].

mod check;
mod cli;
mod config;
mod demo;
mod escape;
mod init;
mod node;
mod registry;

/// Many small documents and keys come and go on many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::run()
}
