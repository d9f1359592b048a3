//! The shared servers: started once, found again, replaced if they differ from the record.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use honeyflow_services::{Record, Server, Services, State};

use crate::private::{PrivateServices, eventually, exists, process_state, redis, signal};

const REDIS: Server = Server::Redis;

#[test]
fn up_twice_keeps_the_same_process() {
    let Some(private) = PrivateServices::with(&[REDIS]) else { return };
    let first = private.up(REDIS);
    let pid = private.pid(REDIS);
    let second = private.up(REDIS);
    assert!(first.started_in.is_some() && second.started_in.is_none());
    assert_eq!((first.url, pid), (second.url, private.pid(REDIS)));
}

#[test]
fn two_concurrent_starts_start_one_server() {
    let Some(private) = PrivateServices::with(&[REDIS]) else { return };
    let starts = std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| private.up(REDIS).started_in.is_some()));
        both.map(|thread| thread.join().unwrap())
    });
    assert_ne!(starts[0], starts[1]);
}

#[test]
fn down_stops_and_the_next_start_has_the_same_port() {
    let Some(private) = PrivateServices::with(&[REDIS]) else { return };
    let url = private.up(REDIS).url;
    let pid = private.pid(REDIS);
    assert_eq!(private.services.down(&[REDIS]).unwrap(), [(REDIS, true)]);
    assert_eq!(process_state(pid), None);
    assert_eq!(private.services.state(REDIS), State::Stopped);
    assert!(private.services.running(REDIS).unwrap_err().contains("cargo xtask services up redis"));
    assert_eq!(private.services.down(&[REDIS]).unwrap(), [(REDIS, false)]);
    assert_eq!(private.up(REDIS).url, url);
}

#[test]
fn a_killed_server_is_noticed_and_replaced() {
    let Some(private) = PrivateServices::with(&[REDIS]) else { return };
    private.up(REDIS);
    let pid = private.pid(REDIS);
    signal(pid, "-KILL");
    eventually("it is gone", || process_state(pid).is_none());
    assert!(matches!(private.services.state(REDIS), State::Dead(record) if record.pid == Some(pid)));
    assert!(private.services.running(REDIS).unwrap_err().contains(&pid.to_string()));
    assert!(private.up(REDIS).started_in.is_some());
    assert_ne!(private.pid(REDIS), pid);
}

/// The pid of a dead server may belong to another program by now.
#[test]
fn a_record_with_the_pid_of_another_program_is_replaced_and_the_program_lives_on() {
    let Some(private) = PrivateServices::with(&[REDIS]) else { return };
    private.up(REDIS);
    let record = private.record(REDIS);
    private.services.down(&[REDIS]).unwrap();
    let mut other_program = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let stale = Record { pid: Some(other_program.id()), ..record };
    let path = private.services.folder_of(REDIS).join("service.json");
    std::fs::write(path, serde_json::to_vec(&stale).unwrap()).unwrap();
    assert_eq!(private.services.state(REDIS), State::Dead(stale));
    assert!(private.up(REDIS).started_in.is_some());
    private.services.down(&[REDIS]).unwrap();
    assert_eq!(other_program.try_wait().unwrap(), None);
    drop(other_program.stdin.take());
    other_program.wait().unwrap();
}

#[test]
fn a_server_whose_record_is_lost_is_not_left_behind() {
    let Some(private) = PrivateServices::with(&[REDIS]) else { return };
    private.up(REDIS);
    let pid = private.pid(REDIS);
    std::fs::write(private.services.folder_of(REDIS).join("service.json"), "{ half").unwrap();
    assert_eq!(private.services.state(REDIS), State::Stopped);
    assert!(private.up(REDIS).started_in.is_some());
    assert_eq!(process_state(pid), None);
}

#[test]
fn a_port_that_was_taken_meanwhile_is_avoided() {
    let Some(private) = PrivateServices::with(&[REDIS]) else { return };
    private.up(REDIS);
    let port = private.record(REDIS).port;
    private.services.down(&[REDIS]).unwrap();
    let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    private.up(REDIS);
    let record = private.record(REDIS);
    assert_ne!(record.port, port);
    assert!(redis(record.port, "PING").starts_with("+PONG"));
    drop(taken);
}

#[test]
fn an_external_server_is_used_and_never_touched() {
    let folder = tempfile::tempdir().unwrap();
    let url = "redis://elsewhere.invalid:1/".to_owned();
    let services = Services::at(folder.path(), [(REDIS, url.clone())]);
    let up = services.up(&[REDIS]).unwrap();
    assert!(matches!(&up[..], [(REDIS, Ok(service))] if service.url == url));
    assert_eq!(services.running(REDIS).unwrap().url, url);
    assert_eq!(services.down(&[REDIS]).unwrap(), [(REDIS, false)]);
    assert_eq!(services.state(REDIS), State::Named(url));
    assert!(!exists(&services.folder_of(REDIS)));
}

/// The pooler would need a login there.
#[test]
fn no_pooler_is_started_in_front_of_an_external_server() {
    let Some(private) = PrivateServices::with(&[Server::Pgbouncer]) else { return };
    let named = (Server::Postgres, "postgres://elsewhere.invalid/".to_owned());
    let services = Services::at(private.folder.path(), [named]);
    let mut up = services.up(&[Server::Pgbouncer]).unwrap();
    let (server, result) = up.pop().unwrap();
    let error = result.unwrap_err();
    assert_eq!(server, Server::Pgbouncer);
    assert!(matches!(&error, honeyflow_services::Error::Missing(why) if why.contains("HONEYFLOW_TEST_PGBOUNCER_URL")));
}
