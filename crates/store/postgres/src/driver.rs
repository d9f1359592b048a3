//! The items of sqlx that this crate uses, in one place.

pub(crate) use sqlx_core::{
    Either, Error,
    connection::ConnectOptions,
    executor::Executor,
    query::{self, query},
    raw_sql::raw_sql,
    row::Row,
    sql_str::AssertSqlSafe,
    value::ValueRef,
};
pub(crate) use sqlx_postgres::{
    PgArguments, PgConnectOptions, PgConnection, PgDatabaseError, PgQueryResult, PgRow, Postgres,
};

/// A statement with values bound to it.
pub(crate) type Query<'q> = query::Query<'q, Postgres, PgArguments>;
