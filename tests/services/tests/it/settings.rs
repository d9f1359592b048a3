//! The settings that tests rely on, read from the running servers.

use std::process::Command;

use honeyflow_services::{Server, State};

use crate::private::{PrivateServices, psql, redis, run};

#[test]
fn postgres_is_durable_and_requires_a_password() {
    let Some(private) = PrivateServices::with(&[Server::Postgres]) else { return };
    let url = private.up(Server::Postgres).url;
    for (setting, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("max_connections", "300"),
        ("server_encoding", "UTF8"),
        ("data_checksums", "on"),
        ("listen_addresses", "127.0.0.1"),
    ] {
        assert_eq!(psql(&url, &format!("show {setting}")).as_deref(), Ok(value), "{setting}");
    }
    let stored = psql(&url, "select left(rolpassword, 13) from pg_authid where rolname = current_user").unwrap();
    assert_eq!(stored, "SCRAM-SHA-256");
    let (before, after) = url.split_once('@').unwrap();
    let wrong = format!("{before}x@{after}");
    assert!(psql(&wrong, "select 1").unwrap_err().contains("password authentication failed"));
}

#[test]
fn pgbouncer_starts_its_postgres_and_shares_sessions() {
    let Some(private) = PrivateServices::with(&[Server::Postgres, Server::Pgbouncer]) else { return };
    let url = private.up(Server::Pgbouncer).url;
    assert!(matches!(private.services.state(Server::Postgres), State::Running(_)));
    // A setting of one client reaches the next one: the pool is in transaction mode.
    psql(&url, "set application_name = 'left behind'").unwrap();
    let modes = psql(&url.replace("/postgres", "/pgbouncer"), "show config").unwrap();
    assert!(modes.lines().any(|line| line.starts_with("pool_mode|transaction|")), "{modes}");
    // PostgreSQL gets another port: the pooler's settings with the old one are replaced.
    let pooler = private.pid(Server::Pgbouncer);
    private.services.down(&[Server::Postgres]).unwrap();
    let port = private.services.folder_of(Server::Postgres).join("service.json");
    std::fs::remove_file(port).unwrap();
    let url = private.up(Server::Pgbouncer).url;
    assert_eq!(psql(&url, "select 1").as_deref(), Ok("1"));
    assert_ne!(private.pid(Server::Pgbouncer), pooler);
}

#[test]
fn mariadb_commits_to_disk_and_requires_a_password() {
    let Some(private) = PrivateServices::with(&[Server::Mariadb]) else { return };
    let url = private.up(Server::Mariadb).url;
    let (login, address) = url.strip_prefix("mysql://").unwrap().split_once('@').unwrap();
    let (user, password) = login.split_once(':').unwrap();
    let (host, database) = address.split_once('/').unwrap();
    let port = host.strip_prefix("127.0.0.1:").unwrap();
    let ask = |user: &str, password: &str, question: &str| {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "-h127.0.0.1", "-P", port, "-u", user, "-BN", "-e", question, database]);
        run(command.env("MYSQL_PWD", password))
    };
    for (variable, value) in [
        ("innodb_flush_log_at_trx_commit", "1"),
        ("max_connections", "300"),
        ("character_set_server", "utf8mb4"),
        ("character_set_database", "utf8mb4"),
    ] {
        assert_eq!(ask(user, password, &format!("select @@{variable}")).as_deref(), Ok(value), "{variable}");
    }
    assert!(ask(user, "wrong", "select 1").unwrap_err().contains("Access denied"));
    let open = "select count(*) from mysql.global_priv where json_value(priv, '$.authentication_string') = '' \
                and coalesce(json_value(priv, '$.account_locked'), 0) = 0";
    assert_eq!(ask(user, password, open).as_deref(), Ok("0"));
}

#[test]
fn redis_evicts_nothing_and_writes_nothing_to_disk() {
    let Some(private) = PrivateServices::with(&[Server::Redis]) else { return };
    private.up(Server::Redis);
    let port = private.record(Server::Redis).port;
    for (setting, value) in [("maxmemory-policy", "noeviction"), ("appendonly", "no"), ("save", "")] {
        let answer = redis(port, &format!("CONFIG GET {setting}"));
        assert_eq!(answer.lines().nth(4), Some(value), "{setting}: {answer}");
    }
}
