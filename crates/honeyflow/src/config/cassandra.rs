//! Reads `[cassandra.NAME]`: a cluster and its connection pool. The pool reads its own keys; the settings of the
//! protocol are in a table below it.

use std::path::{Path, PathBuf};

use honeyflow_event::Name;
use honeyflow_pool::settings::{CompiledSettings, KEYS, Provider, Settings, SettingsError, Table, Value};
use honeyflow_workflow::Problem;

use super::{
    Url, keys,
    secret::SecretError,
    tree::Node,
    values::{Values, wrong_type},
};
use crate::codes;

#[derive(Clone, Debug)]
pub struct CassandraConfig {
    pub name: Name,
    pub pool: Settings,
    /// The file with the compiled settings, if they are not in the section itself.
    pub compiled: Option<PathBuf>,
    pub cql: CqlConfig,
}

#[derive(Clone, Debug)]
pub struct CqlConfig {
    pub user: Option<String>,
    /// A reference to the password, never the password itself.
    pub password: Option<Url>,
    pub compression: String,
    /// The lowest and the highest version of the protocol.
    pub versions: (u8, u8),
    pub frame_bytes_max: usize,
    pub tls: bool,
    pub tls_roots: Option<PathBuf>,
    pub tls_certificate: Option<(PathBuf, PathBuf)>,
    pub tls_name: Option<String>,
}

impl CqlConfig {
    /// Why the password cannot be read here. The driver reads it for each connection, whatever the mode of its file.
    pub fn unreadable_password(&self) -> Option<SecretError> {
        let error = self.password.as_ref()?.resolve().err()?;
        Some(error).filter(|error| !matches!(error, SecretError::Open(_)))
    }
}

/// The table below the section that does not belong to the pool.
const CQL: &str = "cql";
/// The allowed values of `max-frame`: less would be too small for the driver's own requests.
const FRAME_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=256 << 20;
/// The key that names a file with all settings.
const COMPILED: &str = "compiled";

pub fn read(name: &str, node: &Node, folder: &Path, problems: &mut Vec<Problem>) -> Option<CassandraConfig> {
    let path = format!("cassandra.{name}");
    let compiled = node.get(COMPILED);
    let (pool, compiled) = match compiled {
        Some(file) => read_compiled(name, node, file, &path, folder, problems)?,
        None => (read_pool(name, node, &path, problems), None),
    };
    let cql = read_cql(node.get(CQL), &format!("{path}.{CQL}"), folder, problems);
    Some(CassandraConfig { name: name.into(), pool: pool?, compiled, cql: cql? })
}

/// Reads the settings of a pool from a file of `honeyflow config compile`; no other key of the pool may be set beside
/// it.
fn read_compiled(
    name: &str,
    node: &Node,
    file: &Node,
    path: &str,
    folder: &Path,
    problems: &mut Vec<Problem>,
) -> Option<(Option<Settings>, Option<PathBuf>)> {
    let at = format!("{path}.{COMPILED}");
    let Some(written) = file.text() else {
        problems.push(wrong_type(&at, "a path", file));
        return None;
    };
    for key in node.table()?.keys().filter(|key| ![CQL, COMPILED].contains(&key.as_str())) {
        let message = format!("`{key}` cannot be used with `{COMPILED}`, which contains all settings");
        let problem = Problem::error(format!("{path}.{key}"), codes::problem::MISPLACED_KEY, message);
        problems.push(problem.help("remove it, or compile the settings again with it"));
    }
    let file = folder.join(written);
    match load(&file, name) {
        Ok(settings) => Some((Some(settings), Some(file))),
        Err(SettingsError { wrong }) => {
            problems.extend(
                wrong.into_iter().map(|(_, what)| Problem::error(at.clone(), codes::problem::BAD_COMPILED, what)),
            );
            None
        }
    }
}

/// Reads the compiled settings from the file; the pool gets the name of its section.
pub fn load(file: &Path, name: &str) -> Result<Settings, SettingsError> {
    let of = |what: String| SettingsError::of(COMPILED, format!("{}: {what}", file.display()));
    let bytes = std::fs::read(file).map_err(|error| of(format!("cannot be read: {error}")))?;
    let compiled = CompiledSettings::shared(bytes.into()).map_err(|error| of(error.to_string()))?;
    Ok(Settings { name: name.to_owned(), ..compiled.settings()? })
}

fn read_pool(name: &str, node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<Settings> {
    let mut table = Table::from([("name".to_owned(), Value::from(name))]);
    let is_known = |key: &str| KEYS.iter().any(|known| known.name == key);
    for (key, node) in node.table()?.iter().filter(|(key, _)| *key != CQL) {
        if node.table().is_some() && !is_known(key) {
            let message = format!("there is no section [{path}.{key}]");
            problems.push(
                Problem::error(format!("{path}.{key}"), codes::problem::UNKNOWN_KEY, message).nearest(key, [CQL]),
            );
            continue;
        }
        match serde_json::from_value(node.json()) {
            Ok(value) => drop(table.insert(key.clone(), value)),
            Err(_) => problems.push(wrong_type(&format!("{path}.{key}"), "a whole number, a text or a list", node)),
        }
    }
    match Settings::from_table(&table) {
        Ok(settings) => Some(settings),
        Err(SettingsError { wrong }) => {
            problems.extend(wrong.iter().map(|(key, what)| misfit(path, key, what)));
            None
        }
    }
}

/// Turns a message of the pool into a problem at its place; the part after `; ` becomes the hint.
fn misfit(path: &str, key: &str, what: &str) -> Problem {
    let code = if what.starts_with("is no setting") { codes::problem::UNKNOWN_KEY } else { codes::problem::BAD_VALUE };
    let at = format!("{path}.{key}");
    match what.split_once("; ") {
        Some((wrong, help)) => Problem::error(at, code, format!("`{key}` {wrong}")).help(help),
        None => Problem::error(at, code, format!("`{key}` {what}")),
    }
}

fn read_cql(node: Option<&Node>, path: &str, folder: &Path, problems: &mut Vec<Problem>) -> Option<CqlConfig> {
    let values = Values::read(node, keys::CQL, path, problems);
    let (user, password) = (values.text("user"), values.text("password").map(|text| Url::read(&text, folder)));
    if user.is_some() != password.is_some() {
        let (there, missing) = if user.is_some() { ("user", "password") } else { ("password", "user") };
        let problem = Problem::error(
            values.at(there),
            codes::problem::MISSING_KEY,
            format!("`{there}` is set without `{missing}`"),
        );
        problems.push(problem.help("user = \"…\" and password = \"env:CASSANDRA_PASSWORD\""));
    }
    let file = |key: &str| values.text(key).map(|path| folder.join(path));
    let (certificate, key) = (file("tls-certificate"), file("tls-key"));
    if certificate.is_some() != key.is_some() {
        let (there, missing) =
            if key.is_some() { ("tls-key", "tls-certificate") } else { ("tls-certificate", "tls-key") };
        let problem = Problem::error(
            values.at(there),
            codes::problem::MISSING_KEY,
            format!("`{there}` is set without `{missing}`"),
        );
        problems.push(problem.help("a client certificate needs both"));
    }
    let version = |key: &str| values.count(key).and_then(|number| u8::try_from(number).ok());
    let versions = version("lowest-version").zip(version("highest-version"));
    if let Some((lowest, highest)) = versions.filter(|(lowest, highest)| lowest > highest) {
        let message = format!("the highest version, {highest}, is below the lowest, {lowest}");
        problems
            .push(Problem::error(values.at("highest-version"), codes::problem::BAD_VALUE, message).help("swap them"));
    }
    let frame_bytes_max = values.count("max-frame").and_then(|bytes| usize::try_from(bytes).ok());
    if frame_bytes_max.is_some_and(|bytes| !FRAME_BYTES.contains(&bytes)) {
        let message = "`max-frame` is not between `64KiB` and `256MiB`";
        problems.push(Problem::error(values.at("max-frame"), codes::problem::BAD_VALUE, message));
    }
    Some(CqlConfig {
        user,
        password,
        compression: values.text("compression")?,
        versions: versions?,
        frame_bytes_max: frame_bytes_max?,
        tls: values.boolean("tls")?,
        tls_roots: file("tls-roots"),
        tls_certificate: certificate.zip(key),
        tls_name: values.text("tls-name"),
    })
}
