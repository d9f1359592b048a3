//! `cargo xtask services up|down|list`: private servers for tests and for developers, under `target/services`.
//!
//! Standard output has one line for each server, or one object with `--output json`.

use honeyflow_services::{Server, Services, State};
use serde_json::{Value, json};

use crate::Command;
use crate::error::Error;

pub const COMMAND: Command = Command {
    name: "services",
    usage: "services up|down|list [name …] [--output json]",
    about: "private servers on loopback: postgres, mariadb, redis, pgbouncer, cassandra, opensearch; without a name, all of them",
    run,
};

const VERBS: [&str; 3] = ["up", "down", "list"];

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    verb: &'static str,
    servers: Vec<Server>,
    json: bool,
}

fn run(arguments: &[String]) -> Result<(), Error> {
    let arguments = read(arguments)?;
    let services = Services::of_target();
    match arguments.verb {
        "up" => up(&services, &arguments),
        "down" => down(&services, &arguments),
        _ => {
            for server in &arguments.servers {
                print(arguments.json, &about(&services, *server));
            }
            Ok(())
        }
    }
}

fn read(arguments: &[String]) -> Result<Arguments, Error> {
    let Some((word, rest)) = arguments.split_first() else {
        return Err(Error::Usage(format!("up, down or list? cargo xtask {}", COMMAND.usage)));
    };
    let verb = VERBS.into_iter().find(|verb| verb == word).ok_or_else(|| Error::unknown("verb", word, VERBS))?;
    let mut arguments = Arguments { verb, servers: Vec::new(), json: false };
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--output" => match words.next().map(String::as_str) {
                Some("json") => arguments.json = true,
                Some("text") => arguments.json = false,
                other => {
                    return Err(Error::unknown("output", other.unwrap_or_default(), ["json", "text"]));
                }
            },
            option if option.starts_with('-') => {
                return Err(Error::unknown("option of services", option, ["--output"]));
            }
            name => arguments.servers.push(Server::from_name(name).ok_or_else(|| {
                Error::Usage(format!("unknown server `{name}`; there are {}", Server::ALL.map(Server::name).join(", ")))
            })?),
        }
    }
    if arguments.servers.is_empty() {
        arguments.servers = Server::ALL.to_vec();
    }
    Ok(arguments)
}

fn up(services: &Services, arguments: &Arguments) -> Result<(), Error> {
    let mut failed = Vec::new();
    for (server, result) in services.up(&arguments.servers).map_err(|error| Error::failed(error.to_string()))? {
        match result {
            Ok(service) => {
                if let Some(time) = service.started_in {
                    eprintln!("{server}: started in {:.1} s", time.as_secs_f64());
                }
                print(arguments.json, &about(services, server));
            }
            Err(error) => {
                eprintln!("{server}: {error}");
                failed.push(server.name());
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::failed(format!("not running: {}", failed.join(", ")))) }
}

fn down(services: &Services, arguments: &Arguments) -> Result<(), Error> {
    let stopped = services.down(&arguments.servers).map_err(|error| Error::failed(error.to_string()))?;
    for (server, ran) in stopped {
        if ran {
            eprintln!("{server}: stopped");
        }
        print(arguments.json, &about(services, server));
    }
    Ok(())
}

fn about(services: &Services, server: Server) -> Value {
    let mut about = match services.state(server) {
        State::Named(url) => json!({"state": "elsewhere", "url": url, "named_by": server.variable()}),
        State::Running(record) => json!({
            "state": "running", "url": record.url, "version": record.version, "pid": record.pid, "port": record.port,
        }),
        State::Dead(record) => json!({"state": "dead", "pid": record.pid}),
        State::Stopped => json!({"state": "stopped"}),
        State::NotInstalled => json!({"state": "not installed", "packages": server.packages()}),
    };
    about["name"] = json!(server.name());
    about["folder"] = json!(services.folder_of(server));
    about
}

fn print(as_json: bool, about: &Value) {
    if as_json {
        println!("{about}");
        return;
    }
    let text = |key: &str| about[key].as_str().unwrap_or_default();
    let line = format!("{:<10} {:<13} {:<8} {}", text("name"), text("state"), text("version"), text("url"));
    println!("{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Result<Arguments, Error> {
        read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn names_and_output_are_read_in_any_order() {
        let arguments = typed("up redis --output json postgres").unwrap();
        assert_eq!(arguments, Arguments { verb: "up", servers: vec![Server::Redis, Server::Postgres], json: true });
    }

    #[test]
    fn no_name_means_all() {
        assert_eq!(typed("list").unwrap().servers, Server::ALL);
    }

    #[test]
    fn wrong_words_are_wrong_usage_and_the_right_ones_are_named() {
        for (line, hint) in [
            ("", "up, down or list"),
            ("op", "`up`"),
            ("up kafka", "`kafka`; there are postgres, mariadb"),
            ("list --json", "option"),
            ("up --output yaml", "output"),
        ] {
            let error = typed(line).unwrap_err();
            assert!(matches!(error, Error::Usage(_)) && error.to_string().contains(hint), "{line}: {error}");
        }
    }
}
