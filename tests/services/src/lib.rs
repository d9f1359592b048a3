//! Real servers for tests: private instances on loopback, started by `cargo xtask services up` or `cargo xtask test`.
//!
//! A test asks for a server and leaves if there is none; the reason has then been printed as a `SKIPPED` line, and
//! where everything is required (`CI=true`) the question itself fails:
//!
//! ```no_run
//! let Some(postgres) = honeyflow_services::postgres() else { return };
//! println!("{}", postgres.url);
//! ```
//!
//! The shared server belongs to all tests: each makes databases, schemas or key prefixes of its own. What pauses, kills
//! or empties a server takes one for itself:
//!
//! ```no_run
//! let Some(mut redis) = honeyflow_services::throwaway_redis() else { return };
//! redis.kill();
//! redis.start().expect("comes back empty on the same port");
//! ```
//!
//! Only Linux: processes are watched through `/proc`.

mod account;
mod ask;
mod cassandras;
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

/// The shared PostgreSQL; its user may do everything. `None` is already printed as skipped.
pub fn postgres() -> Option<Service> {
    shared(Server::Postgres)
}

/// The shared MariaDB; its user may do everything.
pub fn mariadb() -> Option<Service> {
    shared(Server::Mariadb)
}

/// The shared Redis, with `noeviction` and nothing on disk.
pub fn redis() -> Option<Service> {
    shared(Server::Redis)
}

/// A PgBouncer in transaction mode before the shared PostgreSQL.
pub fn pgbouncer() -> Option<Service> {
    shared(Server::Pgbouncer)
}

/// The shared Cassandra, one node; its user may do everything.
pub fn cassandra() -> Option<Service> {
    shared(Server::Cassandra)
}

/// The shared OpenSearch, one node, without a password.
pub fn opensearch() -> Option<Service> {
    shared(Server::Opensearch)
}

/// The certificates to trust when the shared Cassandra is spoken to by TLS; none if somebody else runs it.
pub fn cassandra_roots() -> Option<std::path::PathBuf> {
    let services = Services::of_target();
    let ours = matches!(services.state(Server::Cassandra), State::Running(_));
    ours.then(|| services.folder_of(Server::Cassandra).join(recipe::ROOTS))
}

/// A PostgreSQL that only the caller knows; it ends with the value, and with the process.
pub fn throwaway_postgres() -> Option<Throwaway> {
    throwaway(Server::Postgres, &[])
}

/// A Redis that only the caller knows; whenever it is started it is empty.
pub fn throwaway_redis() -> Option<Throwaway> {
    throwaway(Server::Redis, &[])
}

/// A MariaDB that only the caller knows.
pub fn throwaway_mariadb() -> Option<Throwaway> {
    throwaway(Server::Mariadb, &[])
}

/// A PgBouncer in transaction mode before a PostgreSQL that only the caller knows; to be dropped before that one.
///
/// # Panics
/// When it is installed and does not start.
pub fn throwaway_pgbouncer(before: &Throwaway) -> Option<Throwaway> {
    match Throwaway::pgbouncer(before) {
        Ok(throwaway) => Some(throwaway),
        Err(Error::Missing(reason)) => skip(Server::Pgbouncer, &reason),
        Err(Error::Failed(reason)) => panic!("{}: {reason}", Server::Pgbouncer),
    }
}

/// A Cassandra that only the caller knows. It takes seconds to start: one test is enough for all that needs it.
pub fn throwaway_cassandra() -> Option<Throwaway> {
    throwaway(Server::Cassandra, &[])
}

/// An OpenSearch that only the caller knows; what was acknowledged survives its death. It takes seconds to start.
pub fn throwaway_opensearch() -> Option<Throwaway> {
    throwaway(Server::Opensearch, &[])
}

/// Like the ones above, with arguments of the server's own added: `["--appendonly", "yes"]`, `["-c", "wal_level=logical"]`.
///
/// # Panics
/// When the server is installed and does not start: that is a finding, not a reason to skip.
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

/// The line by which the test run counts skipped suites.
fn skip<T>(server: Server, reason: &str) -> Option<T> {
    let required = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(!required, "{server} is required here and cannot be had: {reason}");
    println!("SKIPPED {server}: {reason}");
    None
}
