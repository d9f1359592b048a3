//! The jars of the server, fetched once for a target folder by Maven and compared with one sum over all of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::ask;
use crate::error::Error;
use crate::folder;
use crate::install;

const VERSION: &str = "5.0.9";
/// Of what `sha256sum *.jar` prints.
const SUM: &str = "1a9f2968d1b7c3e85249cb365983ec626aff3d07186da41cd211174ffe3a6328";
const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";
/// A hundred files from afar, by a program that starts slowly.
const FETCH_TIME: Duration = Duration::from_secs(600);

fn place() -> PathBuf {
    folder::of_target().join("jars").join(format!("cassandra-{VERSION}"))
}

pub fn are_there() -> bool {
    place().is_dir()
}

/// Where they are. What cannot be fetched is missing, not broken: there may be no network.
pub fn provide() -> Result<PathBuf, Error> {
    let place = place();
    if place.is_dir() {
        return Ok(place);
    }
    let above = folder::make(place.parent().unwrap_or(Path::new(".")))?;
    let work = above.join(format!("cassandra-{}.new", std::process::id()));
    folder::remove(&work)?;
    folder::make(&work)?;
    let fetched = fetch(&work).and_then(|()| {
        match fs::rename(work.join("lib"), &place) {
            // Somebody else was quicker, with the same.
            Err(_) if place.is_dir() => Ok(()),
            renamed => renamed.map_err(Error::io("rename", &work)),
        }
    });
    folder::remove(&work)?;
    fetched.map(|()| place)
}

fn fetch(work: &Path) -> Result<(), Error> {
    let mvn = install::program("mvn").ok_or_else(|| Error::Missing("mvn is not installed".to_owned()))?;
    let project = work.join("pom.xml");
    let text = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>local</groupId><artifactId>cassandra</artifactId><version>1</version><packaging>pom</packaging>\
         <dependencies><dependency><groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId>\
         <version>{VERSION}</version></dependency></dependencies></project>\n"
    );
    fs::write(&project, text).map_err(Error::io("write", &project))?;
    eprintln!("fetching Cassandra {VERSION} from Maven Central");
    let mut command = Command::new(mvn);
    command.args(["-B", "-ntp", "-q", "-f"]).arg(&project).arg(PLUGIN).arg("-DincludeScope=runtime");
    command.arg(format!("-DoutputDirectory={}", work.join("lib").display()));
    let fetched = ask::answer_within(command, FETCH_TIME);
    fetched.map_err(|why| Error::Missing(format!("its jars could not be fetched: {why}")))?;
    let mut sum = Command::new("sh");
    sum.args(["-c", "LC_ALL=C sha256sum *.jar | sha256sum"]).current_dir(work.join("lib"));
    let sum = ask::answer_within(sum, ask::SETUP_TIME).map_err(|why| Error::failed(format!("sha256sum: {why}")))?;
    if sum.split_whitespace().next() != Some(SUM) {
        return Err(Error::failed(format!(
            "the jars of Cassandra {VERSION} are not the known ones: their sum is {sum}"
        )));
    }
    Ok(())
}
