//! `cargo xtask`: the commands of developers. Each command has its own file; this one finds the right command.
//!
//! Exit codes: 0 done, 1 a negative result, 2 wrong usage.

mod bench;
mod chaos;
mod check;
mod error;
mod files;
mod fuzz;
mod help;
mod metadata;
mod model;
mod nearest;
mod process;
mod publish;
mod services;
mod sim;
mod spec;
mod test;
mod tools;

use std::process::ExitCode;

use error::Error;

/// A command: its name, its usage, what it does.
struct Command {
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<(), Error>,
}

const COMMANDS: &[Command] = &[
    check::COMMAND,
    test::COMMAND,
    sim::COMMAND,
    model::COMMAND,
    fuzz::COMMAND,
    bench::COMMAND,
    chaos::COMMAND,
    spec::COMMAND,
    publish::COMMAND,
    services::COMMAND,
    help::COMMAND,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            error.exit_code()
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<(), Error> {
    let Some((word, rest)) = arguments.split_first() else {
        return help::run(&[]);
    };
    let word = match word.as_str() {
        "--help" | "-h" => "help",
        other => other,
    };
    match COMMANDS.iter().find(|command| command.name == word) {
        Some(command) if rest.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--help") => {
            println!("cargo xtask {}\n  {}", command.usage, command.about);
            Ok(())
        }
        Some(command) => (command.run)(rest),
        None => Err(Error::unknown("command", word, COMMANDS.iter().map(|command| command.name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn unknown_command_names_the_nearest_one() {
        let error = dispatch(&words("chekc")).unwrap_err();
        assert_eq!(error.to_string(), "unknown command `chekc`; did you mean `check`?");
        assert!(matches!(error, Error::Usage(_)));
    }

    #[test]
    fn every_usage_begins_with_its_own_name() {
        for command in COMMANDS {
            assert_eq!(command.usage.split(' ').next(), Some(command.name));
        }
    }

    #[test]
    fn unknown_option_is_wrong_usage() {
        for line in ["check --fast", "test --require", "spec --output xml", "services start", "bench"] {
            assert!(matches!(dispatch(&words(line)), Err(Error::Usage(_))), "{line}");
        }
    }
}
