//! Real servers for tests: private instances on loopback, started by `cargo xtask services up` or `cargo xtask test`.
//!
//! A test asks for a server and returns if there is none. The reason has then been printed as a `SKIPPED` line; where
//! every server is required (`CI=true`), the call panics instead:
//!
//! ```no_run
//! let Some(postgres) = honeyflow_services::postgres() else { return };
//! println!("{}", postgres.url);
//! ```
//!
//! All tests share one server: each makes its own databases, schemas or key prefixes. A test that pauses, kills or
//! empties a server starts a private one:
//!
//! ```no_run
//! let Some(mut redis) = honeyflow_services::throwaway_redis() else { return };
//! redis.kill();
//! redis.start().expect("comes back empty on the same port");
//! ```
//!
//! It works only on Linux: processes are watched through `/proc`.

mod account;
mod cassandras;
mod client_program;
mod error;
mod folder;
mod guard;
pub mod install;
mod instance;
mod port;
mod process;
mod recipe;
mod record;
mod server;
mod shared;
mod throwaway;

pub use cassandras::Cassandras;
pub use error::Error;
pub use guard::Guard;
pub use record::Record;
pub use server::Server;
pub use shared::{Outcome, Service, Services, State};
pub use throwaway::Throwaway;

/// The shared PostgreSQL; its user has all rights. `None`: the reason is printed as `SKIPPED`.
pub fn postgres() -> Option<Service> {
    shared(Server::Postgres)
}

/// The shared MariaDB; its user has all rights.
pub fn mariadb() -> Option<Service> {
    shared(Server::Mariadb)
}

/// The shared Redis, with `noeviction` and nothing on disk.
pub fn redis() -> Option<Service> {
    shared(Server::Redis)
}

/// A PgBouncer in transaction mode in front of the shared PostgreSQL.
pub fn pgbouncer() -> Option<Service> {
    shared(Server::Pgbouncer)
}

/// The shared Cassandra, one node; its user has all rights.
pub fn cassandra() -> Option<Service> {
    shared(Server::Cassandra)
}

/// The shared OpenSearch, one node, without a password.
pub fn opensearch() -> Option<Service> {
    shared(Server::Opensearch)
}

/// The certificates to trust for TLS to the shared Cassandra; None for a server that an environment variable names.
pub fn cassandra_roots() -> Option<std::path::PathBuf> {
    let services = Services::of_target();
    let ours = matches!(services.state(Server::Cassandra), State::Running(_));
    ours.then(|| services.folder_of(Server::Cassandra).join(recipe::ROOTS))
}

/// A PostgreSQL for the caller alone; it ends with the value, and with the process.
pub fn throwaway_postgres() -> Option<Throwaway> {
    throwaway(Server::Postgres, &[])
}

/// A Redis for the caller alone; it is empty after every start.
pub fn throwaway_redis() -> Option<Throwaway> {
    throwaway(Server::Redis, &[])
}

/// A MariaDB for the caller alone.
pub fn throwaway_mariadb() -> Option<Throwaway> {
    throwaway(Server::Mariadb, &[])
}

/// A PgBouncer in transaction mode in front of a throwaway PostgreSQL; drop it before that one.
///
/// # Panics
/// If it is installed and does not start.
pub fn throwaway_pgbouncer(before: &Throwaway) -> Option<Throwaway> {
    match Throwaway::pgbouncer(before) {
        Ok(throwaway) => Some(throwaway),
        Err(Error::Missing(reason)) => skip(Server::Pgbouncer, &reason),
        Err(Error::Failed(reason)) => panic!("{}: {reason}", Server::Pgbouncer),
    }
}

/// A Cassandra for the caller alone. It takes seconds to start: use one for all tests that need it.
pub fn throwaway_cassandra() -> Option<Throwaway> {
    throwaway(Server::Cassandra, &[])
}

/// An OpenSearch for the caller alone; acknowledged writes survive a kill. It takes seconds to start.
pub fn throwaway_opensearch() -> Option<Throwaway> {
    throwaway(Server::Opensearch, &[])
}

/// Like the functions above, with additional arguments for the server: `["--appendonly", "yes"]`, `["-c",
/// "wal_level=logical"]`.
///
/// # Panics
/// If the server is installed and does not start: that is a failure, not a reason to skip.
pub fn throwaway(server: Server, arguments: &[&str]) -> Option<Throwaway> {
    match Throwaway::new(server, arguments) {
        Ok(throwaway) => Some(throwaway),
        Err(Error::Missing(reason)) => skip(server, &reason),
        Err(Error::Failed(reason)) => panic!("{server}: {reason}"),
    }
}

fn shared(server: Server) -> Option<Service> {
    match Services::of_target().running(server) {
        Ok(service) => Some(service),
        Err(reason) => skip(server, &reason),
    }
}

/// Prints the line by which the test run counts skipped suites.
fn skip<T>(server: Server, reason: &str) -> Option<T> {
    let required = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(!required, "{server} is required here and not available: {reason}");
    println!("SKIPPED {server}: {reason}");
    None
}
