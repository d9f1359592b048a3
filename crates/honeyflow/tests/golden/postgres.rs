//! Tables, indexes and functions on PostgreSQL, as the server describes them after a node has worked there.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    assert_golden,
    shop::{binary, write_private},
};

const CONFIG: &str = "[node]\nname = \"a\"\nlisten = \"127.0.0.1:0\"\n\n[source.shop]\nurl = \"file:address\"\n";

/// One line per column, index and function.
const NAMES: &str = "
    select 'column ' || table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' '
           || coalesce(column_default, '') || coalesce(generation_expression, '')
      from information_schema.columns where table_schema = 'public'
    union all select indexdef from pg_indexes where schemaname = 'public'
    union all select 'function ' || p.oid::regprocedure::text || ' ' || md5(p.prosrc) from pg_proc p
      join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'public'
    union all select 'trigger ' || tgname || ' ' || tgrelid::regclass::text from pg_trigger where not tgisinternal
    order by 1";

#[test]
fn names_in_a_postgresql_database() {
    let Some(server) = honeyflow_services::postgres() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (address, _) = server.url.rsplit_once('/').expect("a URL with a database");
    let name = format!("golden_{}", std::process::id());
    let psql = |database: &str, statement: &str| {
        let ran = Command::new("psql")
            .args(["-X", "-q", "-t", "-A", "-d", &format!("{address}/{database}"), "-c", statement])
            .output()
            .expect("psql");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).expect("UTF-8")
    };
    psql("postgres", &format!("create database {name}"));
    write_private(&folder.path().join("address"), &format!("{address}/{name}"));
    std::fs::write(folder.path().join("honeyflow.toml"), CONFIG).expect("a file");
    let printed = binary(folder.path()).args(["source", "install", "--print"]).output().expect("the binary");
    let statements = String::from_utf8(printed.stdout).expect("UTF-8");
    let statements =
        statements.lines().filter(|line| !line.starts_with("--")).fold(String::new(), |text, line| text + line + "\n");
    assert_golden("postgres_install.txt", &statements);
    let node = binary(folder.path()).args(["start", "--yes"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut node = node.expect("the binary");
    let begun = Instant::now();
    let counted = "select count(*) from pg_tables where tablename = 'hive_view'";
    while psql(&name, counted).trim() != "1"
        || psql(&name, "select count(*) from hive_view where counted_ms > 0").trim() != "1"
    {
        assert!(begun.elapsed() < Duration::from_secs(60), "the node did not begin to work");
        std::thread::sleep(Duration::from_millis(50));
    }
    let names = psql(&name, NAMES);
    let _ = node.kill();
    let _ = node.wait();
    psql("postgres", &format!("drop database {name}"));
    assert_golden("postgres_schema.txt", &names);
}
