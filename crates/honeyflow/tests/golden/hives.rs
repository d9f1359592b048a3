//! Tables of a hive on MariaDB and keys of one on Redis, after a node has worked there.

use std::{collections::BTreeSet, process::Command};

use crate::{assert_golden, shop::Shop};

#[test]
fn names_of_a_hive_on_mariadb() {
    let Some(server) = honeyflow_services::mariadb() else { return };
    let login = server.url.trim_start_matches("mysql://");
    let (login, rest) = login.split_once('@').expect("a URL with a login");
    let (user, password) = login.split_once(':').expect("a URL with a password");
    let (host, _) = rest.split_once('/').expect("a URL with a database");
    let (host, port) = host.split_once(':').expect("a URL with a port");
    let database = format!("golden_{}", std::process::id());
    let ask = |statement: &str| {
        let arguments = ["--protocol=tcp", "-N", "-B", "-h", host, "-P", port, "-u", user, "-e", statement];
        let ran = Command::new("mariadb").args(arguments).env("MYSQL_PWD", password).output().expect("mariadb");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).expect("UTF-8")
    };
    ask(&format!("create database {database}"));
    let shop = Shop::with_hive(&format!("mysql://{login}@{host}:{port}/{database}"), "golden");
    let tables = format!(
        "select count(*) from information_schema.tables where table_schema = '{database}' and table_name = 'hive_view'"
    );
    let counted = format!("select count(*) from {database}.hive_view where counted_ms > 0");
    shop.until("the queen has counted", || ask(&tables).trim() == "1" && ask(&counted).trim() == "1");
    let names = ask(&format!(
        "select concat(table_name, '.', column_name, ' ', column_type, ' ', is_nullable, ' ', column_key) as line
         from information_schema.columns where table_schema = '{database}' order by line"
    ));
    drop(shop);
    ask(&format!("drop database {database}"));
    assert_golden("mariadb_hive.txt", &names);
}

#[test]
fn names_of_a_hive_on_redis() {
    let Some(server) = honeyflow_services::redis() else { return };
    let ask = |words: &[&str]| {
        let ran = Command::new("redis-cli").args(["-u", &server.url]).args(words).output().expect("redis-cli");
        String::from_utf8(ran.stdout).expect("UTF-8").lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let hive = format!("golden-{}", std::process::id());
    let shop = Shop::with_hive(&server.url, &hive);
    let view = format!("{{hive:{hive}}}:view");
    shop.until("the queen has counted", || !ask(&["hget", &view, "counted_ms"]).concat().is_empty());
    let mut names = BTreeSet::new();
    for key in ask(&["--scan", "--pattern", &format!("*{{hive:{hive}}}*")]) {
        let fields = if ask(&["type", &key]) == ["hash"] { ask(&["hkeys", &key]) } else { ask(&["type", &key]) };
        names.extend(fields.iter().map(|field| format!("{} {}\n", fixed(&key, &hive), fixed(field, &hive))));
    }
    drop(shop);
    assert_golden("redis_hive.txt", &names.into_iter().collect::<String>());
}

/// Replaces what differs from run to run: the hive's name, node ids and numbers.
fn fixed(text: &str, hive: &str) -> String {
    let text = text.replace(hive, "HIVE");
    let word = |word: &str| match word {
        word if word.len() >= 32 && word.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-') => {
            "ID".to_owned()
        }
        word if !word.is_empty() && word.chars().all(|letter| letter.is_ascii_digit()) => "NUMBER".to_owned(),
        word => word.to_owned(),
    };
    text.split(':').map(word).collect::<Vec<_>>().join(":")
}
