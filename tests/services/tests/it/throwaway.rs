//! Throwaway servers: mistreated, restarted, and gone with the value or the process that started them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use honeyflow_services::{Error, Server, Throwaway, throwaway_postgres, throwaway_redis};

use crate::private::{eventually, exists, process_state, psql, redis};

#[test]
fn a_restarted_redis_is_empty_and_keeps_its_url() {
    let Some(mut server) = throwaway_redis() else { return };
    let url = server.url().to_owned();
    assert!(redis(server.port(), "SET key value").starts_with("+OK"));
    let pid = server.pid();
    server.kill();
    assert!(!server.is_running());
    assert_eq!(process_state(pid), None);
    server.start().unwrap();
    assert!(server.is_running());
    assert_eq!(server.url(), url);
    assert!(redis(server.port(), "EXISTS key").starts_with(":0"));
}

#[test]
fn arguments_of_the_caller_win() {
    let Some(mut server) =
        honeyflow_services::throwaway(Server::Redis, &["--appendonly", "yes", "--appendfsync", "always"])
    else {
        return;
    };
    assert!(redis(server.port(), "SET key value").starts_with("+OK"));
    server.kill();
    server.start().unwrap();
    assert!(redis(server.port(), "EXISTS key").starts_with(":1"));
    server.restart_empty().unwrap();
    assert!(redis(server.port(), "EXISTS key").starts_with(":0"));
}

#[test]
fn postgres_keeps_what_was_committed_until_it_is_emptied() {
    let Some(mut server) = throwaway_postgres() else { return };
    psql(server.url(), "create table kept as select 7 as number").unwrap();
    server.kill();
    assert!(psql(server.url(), "select 1").is_err());
    server.start().unwrap();
    assert_eq!(psql(server.url(), "select number from kept").as_deref(), Ok("7"));
    server.restart_empty().unwrap();
    assert!(psql(server.url(), "select number from kept").unwrap_err().contains("does not exist"));
}

#[test]
fn a_paused_server_stands_still_with_all_its_processes() {
    let Some(server) = throwaway_postgres() else { return };
    server.pause();
    let children = children(server.pid());
    assert!(!children.is_empty());
    for pid in children.iter().chain([&server.pid()]) {
        // A process that had just ended cannot be reaped now.
        assert!(matches!(process_state(*pid), Some('T') | None), "{pid}");
    }
    assert!(server.is_running());
    server.resume();
    assert_eq!(psql(server.url(), "select 1").as_deref(), Ok("1"));
}

#[test]
fn the_error_of_a_server_that_dies_while_it_starts_contains_its_log() {
    match Throwaway::new(Server::Redis, &["--maxmemory-policy", "no-such-policy"]) {
        Ok(_) => panic!("it started"),
        Err(Error::Missing(why)) => println!("SKIPPED redis: {why}"),
        Err(Error::Failed(why)) => assert!(why.contains("ended with") && why.contains("maxmemory-policy"), "{why}"),
    }
}

#[test]
fn it_is_gone_with_its_value() {
    let Some(server) = throwaway_redis() else { return };
    let (pid, folder) = (server.pid(), folder_of(&server));
    assert!(exists(&folder));
    drop(server);
    assert_eq!(process_state(pid), None);
    assert!(!exists(&folder));
}

/// Also when no process is left to clean up, and when the server is paused and takes no polite signal.
#[test]
fn it_is_gone_with_a_process_that_was_killed() {
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "throwaway::holder", "--nocapture"])
        .env("HOLD_A_SERVER", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines().map_while(Result::ok);
    let held = lines.into_iter().find_map(|line| line.split_once("HELD ").map(|(_, held)| held.to_owned()));
    let Some(held) = held else {
        println!("SKIPPED postgres: not installed");
        holder.wait().unwrap();
        return;
    };
    let (pid, folder) = held.split_once(' ').unwrap();
    let (pid, folder): (u32, PathBuf) = (pid.parse().unwrap(), folder.into());
    assert!(process_state(pid).is_some() && exists(&folder));
    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("the server is gone", || process_state(pid).is_none());
    eventually("its folder is gone", || !exists(&folder));
}

/// The child process of the test above; in a normal run it does nothing.
#[test]
fn holder() {
    if std::env::var_os("HOLD_A_SERVER").is_none() {
        return;
    }
    let Some(server) = throwaway_postgres() else { return };
    server.pause();
    println!("HELD {} {}", server.pid(), folder_of(&server).display());
    let mut forever = String::new();
    std::io::stdin().read_line(&mut forever).unwrap();
}

fn folder_of(server: &Throwaway) -> PathBuf {
    server.log().parent().map(Path::to_path_buf).unwrap()
}

fn children(parent: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}
