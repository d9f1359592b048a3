//! Checks a server and its hive tables before a node joins: table version and durability settings.

use honeyflow_runtime::Failure;

use crate::{codes, driver::Error, row::Line, schema};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    /// The version of the hive's tables.
    schema: usize,
    fsync: bool,
    full_page_writes: bool,
}

/// A query that returns one row, for [`Server::read`].
pub(crate) fn ask() -> &'static str {
    "select (select value from hive_meta where name = 'schema'), current_setting('fsync') = 'on',
       current_setting('full_page_writes') = 'on'"
}

/// An SQL condition for a statement that writes: where it is false, the statement changes nothing.
pub(crate) fn is_fit() -> String {
    let version = schema::version();
    format!(
        "exists (select 1 from hive_meta where name = 'schema' and value = '{version}')
           and current_setting('fsync') = 'on' and current_setting('full_page_writes') = 'on'"
    )
}

impl Server {
    pub fn read(line: Line<'_>) -> Result<Server, Error> {
        let schema = line.text_or_null(0)?.and_then(|version| version.parse().ok()).unwrap_or(0);
        Ok(Server { schema, fsync: line.flag(1)?, full_page_writes: line.flag(2)? })
    }

    pub fn is_outdated(&self) -> bool {
        self.schema < schema::version()
    }

    /// Refuses a server on which epochs are not safe.
    pub fn judge(&self) -> Result<(), Failure> {
        let (found, known) = (self.schema, schema::version());
        if found > known {
            let said =
                format!("the hive's tables have version {found}, this program knows up to {known}; use a newer one");
            return Err(Failure::fatal(codes::SCHEMA_TOO_NEW, said));
        }
        for (name, on) in [("fsync", self.fsync), ("full_page_writes", self.full_page_writes)] {
            if !on {
                let said = format!(
                    "the server runs with {name} = off: after a crash of the machine an epoch could be given twice; set it \
                     to on in postgresql.conf and reload"
                );
                return Err(Failure::fatal(codes::NOT_DURABLE, said));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl_20_a_server_that_may_lose_what_it_has_committed_is_refused() {
        let good = Server { schema: schema::version(), fsync: true, full_page_writes: true };
        assert_eq!(good.judge(), Ok(()));
        for bad in [Server { fsync: false, ..good.clone() }, Server { full_page_writes: false, ..good.clone() }] {
            assert_eq!(bad.judge().unwrap_err().code, "not-durable");
        }
        assert_eq!(Server { schema: 99, ..good.clone() }.judge().unwrap_err().code, "schema-too-new");
        let old = Server { schema: 0, ..good };
        assert!(old.is_outdated() && old.judge().is_ok());
    }
}
