//! The binary: runs the command line and returns its exit code.

/// Chosen because many threads allocate and free many small documents and keys.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    honeyflow::cli::run()
}
