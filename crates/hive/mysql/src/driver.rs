//! The parts of sqlx that this crate uses, in one place.

pub(crate) use sqlx_core::{
    Either, Error, connection::ConnectOptions, executor::Executor, raw_sql::raw_sql, row::Row, sql_str::AssertSqlSafe,
};
pub(crate) use sqlx_mysql::{MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlRow};
