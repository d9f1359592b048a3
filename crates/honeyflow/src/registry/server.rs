//! A source on a database server. So far its tables can be made and looked at; a node cannot run from it before leases
//! and capture are there too.

use honeyflow_runtime::Failure;

use crate::config::{SourceConfig, Url};

pub struct Server {
    name: String,
    #[cfg(feature = "postgres")]
    options: honeyflow_store_postgres::Options,
}

impl Server {
    /// None if the address is another kind's.
    pub fn of(source: &SourceConfig) -> Result<Option<Server>, Failure> {
        let name = &source.name;
        let url = resolved(&source.url, name)?;
        if !is_postgres(&url) {
            return Ok(None);
        }
        #[cfg(feature = "postgres")]
        return Ok(Some(Server {
            name: name.to_string(),
            options: honeyflow_store_postgres::Options::new(&url, name.clone())?,
        }));
        #[cfg(not(feature = "postgres"))]
        Err(not_built(name))
    }

    /// The statements of an installation, for whoever runs them by hand, and what a role needs that did not.
    #[cfg(feature = "postgres")]
    pub fn plan(&self) -> String {
        use honeyflow_store_postgres::{grants, schema};
        let tables = schema::ddl(self.options.shards);
        let note = "-- what the node's role needs, if another one makes the tables; then what an application needs that \
                    writes events itself";
        let (node, application) = (grants::for_honeyflow("honeyflow", &[]), grants::for_application("application"));
        let commented = format!("{node}{application}").lines().map(|line| format!("-- {line}\n")).collect::<String>();
        format!("{tables}\n{note}\n{commented}")
    }

    /// Makes the tables; a second time, nothing changes. What to tell people.
    #[cfg(feature = "postgres")]
    pub async fn install(&self) -> Result<String, Failure> {
        let store = honeyflow_store_postgres::PostgresStore::open(self.options.clone()).await?;
        let there = store.is_installed().await?;
        let installed = store.migrate().await?;
        let made = if there { "the tables are there" } else { "tables made" };
        Ok(format!("{}: {made}, version {}, {} shards", self.name, installed.version, installed.shards))
    }

    #[cfg(not(feature = "postgres"))]
    pub fn plan(&self) -> String {
        String::new()
    }

    #[cfg(not(feature = "postgres"))]
    pub async fn install(&self) -> Result<String, Failure> {
        Err(not_built(&self.name))
    }
}

/// Why a node cannot work from this address yet; none if it is not a server's.
pub fn refusal(url: &str, name: &str) -> Option<Failure> {
    if !is_postgres(url) {
        return None;
    }
    if cfg!(not(feature = "postgres")) {
        return Some(not_built(name));
    }
    let message = format!(
        "{name}: on PostgreSQL the tables can be made (honeyflow source install), but this build has no leases and no \
         capture there (needs hive/postgres); use sqlite:"
    );
    Some(Failure::fatal("not-yet-on-postgresql", message))
}

fn not_built(name: &str) -> Failure {
    let message = format!("{name}: this build has no store for PostgreSQL; build it with --features postgres");
    Failure::fatal("unknown-url", message)
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres:") || url.starts_with("postgresql:")
}

fn resolved(url: &Url, name: &str) -> Result<String, Failure> {
    match url.resolve() {
        Ok(url) => Ok(url.reveal().to_owned()),
        Err(unresolved) => Err(Failure::fatal("unresolved", format!("{name}: {unresolved}; {}", unresolved.help()))),
    }
}
