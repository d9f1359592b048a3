//! Checks whether the set-up is secure (SE-38): who can reach the port, whether commits survive a power cut, and who
//! may read and write the files. The bad case of each line becomes a warning.

use std::path::Path;

use honeyflow_workflow::Problem;

use super::SourceReport;
use crate::{
    codes,
    config::{Config, warning},
};

/// One line of the report.
pub struct Line {
    pub what: &'static str,
    pub found: String,
}

pub async fn report(config: &Config, examined: &[SourceReport], problems: &mut Vec<Problem>) -> Vec<Line> {
    let mut lines = vec![
        Line { what: "bind", found: format!("{}, this machine only", config.node.listen) },
        Line {
            what: "TLS",
            found: "none; only other addresses need it, and those are refused until tokens and TLS exist".into(),
        },
        Line { what: "roles", found: "every user of this machine may operate the node and send events".into() },
    ];
    for source in examined {
        let Some(database) = &source.database else { continue };
        let path = format!("source.{}.url", source.source);
        if let Ok(mode) = database.journal_mode().await {
            let mode = mode.unwrap_or_else(|| "wal".to_owned());
            if let Ok(durability) = database.durability().await {
                lines.push(Line { what: "durability", found: format!("{}: {durability}", source.source) });
            }
            if mode != "wal" {
                let message = format!(
                    "the database's journal is `{mode}`: readers and the application's writers block each other"
                );
                problems.push(warning(
                    path.as_str(),
                    codes::problem::NO_WAL,
                    &message,
                    "`honeyflow source install` switches to WAL after asking; the setting is stored in the file",
                ));
            }
        }
        if let Some(file) = database.file() {
            file_mode(&mut lines, file, 0o002, "written by every user of this machine", &path, problems);
        }
    }
    file_mode(
        &mut lines,
        &config.file,
        0o022,
        "changed by other users, who could name another database",
        "node",
        problems,
    );
    file_mode(
        &mut lines,
        &config.node.data,
        0o007,
        "read by every user of this machine, with all that is indexed",
        "node.data",
        problems,
    );
    lines
}

#[cfg(unix)]
fn file_mode(lines: &mut Vec<Line>, file: &Path, refused: u32, why: &str, path: &str, problems: &mut Vec<Problem>) {
    use std::os::unix::fs::PermissionsExt;
    // A file that does not exist yet will be created with the right mode.
    let Ok(metadata) = std::fs::metadata(file) else { return };
    let mode = metadata.permissions().mode() & 0o777;
    lines.push(Line { what: "files", found: format!("{} {mode:04o}", file.display()) });
    if mode & refused != 0 {
        let message = format!("{} (mode {mode:04o}) can be {why}", file.display());
        let help = format!("chmod {:04o} {}", mode & !refused, file.display());
        problems.push(warning(path, codes::problem::FILE_MODE, &message, &help));
    }
}

#[cfg(not(unix))]
fn file_mode(_: &mut Vec<Line>, _: &Path, _: u32, _: &str, _: &str, _: &mut Vec<Problem>) {}
