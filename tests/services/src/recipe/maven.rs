//! Servers that Debian has no package of: fetched from Maven Central once for a target folder, and compared with one sum
//! over all their files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::ask;
use crate::error::Error;
use crate::folder;
use crate::install;

const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1";
/// A hundred files from afar, by a program that starts slowly.
const FETCH_TIME: Duration = Duration::from_secs(600);
/// Of every file, by its path and in the order of paths: what comes, and nothing beside it.
const SUM: &str = "find . -type f -printf '%P\\n' | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum";

/// One artifact and where its files come to lie.
pub struct Artifact {
    pub name: &'static str,
    pub group: &'static str,
    pub artifact: &'static str,
    pub version: &'static str,
    /// `jar` for a program that is taken with everything it depends on, `zip` for one that is packed whole.
    pub packing: &'static str,
    pub sum: &'static str,
}

impl Artifact {
    fn place(&self) -> PathBuf {
        folder::of_target().join("jars").join(format!("{}-{}", self.name, self.version))
    }

    pub fn is_there(&self) -> bool {
        self.place().is_dir()
    }

    /// Where it is. What cannot be fetched is missing, not broken: there may be no network.
    pub fn provide(&self) -> Result<PathBuf, Error> {
        // Two Mavens at once would write to the same folder at home.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let place = self.place();
        if place.is_dir() {
            return Ok(place);
        }
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let above = folder::make(place.parent().unwrap_or(Path::new(".")))?;
        let work = above.join(format!("{}-{}.new", self.name, std::process::id()));
        folder::remove(&work)?;
        folder::make(&work)?;
        let fetched = self.fetch(&work).and_then(|()| match fs::rename(work.join("files"), &place) {
            // Somebody else was quicker, with the same.
            Err(_) if place.is_dir() => Ok(()),
            renamed => renamed.map_err(Error::io("rename", &work)),
        });
        folder::remove(&work)?;
        fetched.map(|()| place)
    }

    fn fetch(&self, work: &Path) -> Result<(), Error> {
        let Self { name, version, sum: known, .. } = self;
        let mvn = install::program("mvn").ok_or_else(|| Error::Missing("mvn is not installed".to_owned()))?;
        let project = work.join("pom.xml");
        fs::write(&project, self.project()).map_err(Error::io("write", &project))?;
        eprintln!("fetching {name} {version} from Maven Central");
        let goal = if self.packing == "jar" { "copy-dependencies" } else { "unpack-dependencies" };
        let files = work.join("files");
        let mut command = Command::new(mvn);
        command.args(["-B", "-ntp", "-q", "-f"]).arg(&project).arg(format!("{PLUGIN}:{goal}"));
        command.arg("-DincludeScope=runtime").arg(format!("-DoutputDirectory={}", files.display()));
        let fetched = ask::answer_within(command, FETCH_TIME);
        fetched.map_err(|why| Error::Missing(format!("{name} could not be fetched: {why}")))?;
        let mut sum = Command::new("sh");
        sum.args(["-c", SUM]).current_dir(&files);
        let sum = ask::answer_within(sum, ask::SETUP_TIME).map_err(|why| Error::failed(format!("sha256sum: {why}")))?;
        if sum.split_whitespace().next() != Some(known) {
            return Err(Error::failed(format!(
                "the files of {name} {version} are not the known ones: their sum is {sum}"
            )));
        }
        // The server's user reads them, whatever our mask is.
        let mut open = Command::new("chmod");
        open.args(["-R", "a+rX", "."]).current_dir(&files);
        ask::answer(open).map(drop).map_err(|why| Error::failed(format!("chmod: {why}")))
    }

    fn project(&self) -> String {
        let Self { name, group, artifact, version, packing, .. } = self;
        format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
             <groupId>local</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>\
             <dependencies><dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version><type>{packing}</type></dependency></dependencies></project>\n"
        )
    }
}
