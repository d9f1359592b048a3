//! The binary: what was typed → what it means → call → print → exit code.

/// Many small documents and keys come and go on many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    honeyflow::cli::run()
}
