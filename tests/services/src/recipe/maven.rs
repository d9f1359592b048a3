//! Servers that have no Debian package: fetched from Maven Central once per target folder, and verified by one checksum
//! over all their files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::client_program;
use crate::error::Error;
use crate::folder;
use crate::install;

const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1";
/// Allows for a hundred downloads by a program that starts slowly.
const FETCH_TIME: Duration = Duration::from_secs(600);
/// The checksum over every file with its path, in the order of paths: it also detects additional files.
const SUM: &str = "find . -type f -printf '%P\\n' | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum";

/// One artifact, and how it is fetched.
pub struct Artifact {
    pub name: &'static str,
    pub group: &'static str,
    pub artifact: &'static str,
    pub version: &'static str,
    /// `jar` for a program that is fetched with all its dependencies, `zip` for one that is packed whole.
    pub packing: &'static str,
    pub sum: &'static str,
}

impl Artifact {
    fn folder(&self) -> PathBuf {
        folder::of_target().join("jars").join(format!("{}-{}", self.name, self.version))
    }

    pub fn is_fetched(&self) -> bool {
        self.folder().is_dir()
    }

    /// Returns the folder of the files, and fetches them if necessary. A failed fetch is `Error::Missing`: there may be
    /// no network.
    pub fn provide(&self) -> Result<PathBuf, Error> {
        // Two Mavens at once would write to the same folder in the user's home.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let target = self.folder();
        if target.is_dir() {
            return Ok(target);
        }
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let above = folder::make(target.parent().unwrap_or(Path::new(".")))?;
        let work = above.join(format!("{}-{}.new", self.name, std::process::id()));
        folder::remove(&work)?;
        folder::make(&work)?;
        let fetched = self.fetch(&work).and_then(|()| match fs::rename(work.join("files"), &target) {
            // Another process was faster, with the same files.
            Err(_) if target.is_dir() => Ok(()),
            renamed => renamed.map_err(Error::io("rename", &work)),
        });
        folder::remove(&work)?;
        fetched.map(|()| target)
    }

    fn fetch(&self, work: &Path) -> Result<(), Error> {
        let Self { name, version, sum: expected, .. } = self;
        let mvn = install::program("mvn").ok_or_else(|| Error::Missing("mvn is not installed".to_owned()))?;
        let project = work.join("pom.xml");
        fs::write(&project, self.project()).map_err(Error::io("write", &project))?;
        eprintln!("fetching {name} {version} from Maven Central");
        let goal = if self.packing == "jar" { "copy-dependencies" } else { "unpack-dependencies" };
        let files = work.join("files");
        let mut command = Command::new(mvn);
        command.args(["-B", "-ntp", "-q", "-f"]).arg(&project).arg(format!("{PLUGIN}:{goal}"));
        command.arg("-DincludeScope=runtime").arg(format!("-DoutputDirectory={}", files.display()));
        let fetched = client_program::run_within(command, FETCH_TIME);
        fetched.map_err(|why| Error::Missing(format!("cannot fetch {name}: {why}")))?;
        let mut sum = Command::new("sh");
        sum.args(["-c", SUM]).current_dir(&files);
        let sum = client_program::run_within(sum, client_program::SETUP_TIME)
            .map_err(|why| Error::failed(format!("sha256sum: {why}")))?;
        if sum.split_whitespace().next() != Some(expected) {
            return Err(Error::failed(format!("the files of {name} {version} have an unexpected checksum: {sum}")));
        }
        // The server's user must be able to read them, whatever our umask is.
        let mut open = Command::new("chmod");
        open.args(["-R", "a+rX", "."]).current_dir(&files);
        client_program::run(open).map(drop).map_err(|why| Error::failed(format!("chmod: {why}")))
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
