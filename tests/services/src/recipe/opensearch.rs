//! OpenSearch, one node: a small heap, no password, loopback only, every acknowledged write on disk. There is no Debian
//! package; the vendor's smallest build comes from Maven Central.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::maven::Artifact;
use super::{InstanceHome, MissingProgram, Recipe, path_text, program, words};
use crate::error::Error;
use crate::record::write_private;

pub struct Opensearch;

const VERSION: &str = "2.19.6";
const BUILD: Artifact = Artifact {
    name: "opensearch",
    group: "org.opensearch.distribution.integ-test-zip",
    artifact: "opensearch",
    version: VERSION,
    packing: "zip",
    sum: "a0eba2169cc9288f74a984278e726bd3c099292b2b84b0ca8eb0828eeb04a55d",
};

const ANSWER_TIME: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

const JVM: [&str; 20] = [
    "-Xshare:auto",
    "-Xms256m",
    "-Xmx256m",
    "-XX:MaxDirectMemorySize=128m",
    "-Xss1m",
    "-XX:+UseSerialGC",
    // Starts are far more frequent than long runs.
    "-XX:TieredStopAtLevel=1",
    "-XX:+PerfDisableSharedMem",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-OmitStackTraceInFastThrow",
    "-Djava.awt.headless=true",
    "-Dfile.encoding=UTF-8",
    "-Djna.nosys=true",
    "-Dio.netty.noUnsafe=true",
    "-Dio.netty.noKeySetOptimization=true",
    "-Dio.netty.recycler.maxCapacityPerThread=0",
    "-Dio.netty.allocator.numDirectArenas=0",
    "-Dlog4j.shutdownHookEnabled=false",
    "-Dlog4j2.disable.jmx=true",
    "-Dopensearch.distribution.type=zip",
];

/// Settings that a caller's argument may override; OpenSearch refuses an argument that is given twice.
const SETTINGS: &str = "discovery.type: single-node\n";

const LOG4J: &str = "status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%-25c{1.}] %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
";

impl Recipe for Opensearch {
    fn program(&self) -> Result<PathBuf, MissingProgram> {
        // Maven is needed only until the build is fetched.
        if !BUILD.is_fetched() {
            program("mvn")?;
        }
        program("java")
    }

    /// OpenSearch refuses root.
    fn accounts(&self) -> &'static [&'static str] {
        &["opensearch", "nobody"]
    }

    /// The settings are in the data folder, because OpenSearch writes a file beside them.
    fn make_data(&self, instance: &InstanceHome, empty: &Path) -> Result<(), Error> {
        for name in ["conf", "store", "logs", "tmp"] {
            let folder = empty.join(name);
            fs::create_dir(&folder).map_err(Error::io("create", &folder))?;
            instance.account.own(&folder)?;
        }
        Ok(())
    }

    fn arguments(&self, instance: &InstanceHome, port: u16) -> Result<Vec<String>, Error> {
        let home = path_text(&BUILD.provide()?.join(format!("opensearch-{VERSION}")));
        let data = instance.data();
        for (name, text) in [("opensearch.yml", SETTINGS), ("log4j2.properties", LOG4J)] {
            let path = data.join("conf").join(name);
            write_private(&path, text.as_bytes())?;
            instance.account.own(&path)?;
        }
        let data = path_text(&data);
        // Traffic between nodes needs a second port. The address is made from the first port, so that instances stay
        // apart.
        let [high, low] = port.to_be_bytes();
        let mut arguments = words(JVM);
        arguments.extend([
            format!("-Djava.io.tmpdir={data}/tmp"),
            format!("-XX:ErrorFile={data}/logs/hs_err_pid%p.log"),
            format!("-Dopensearch.path.home={home}"),
            format!("-Dopensearch.path.conf={data}/conf"),
            "-Dopensearch.bundled_jdk=false".to_owned(),
            "-cp".to_owned(),
            format!("{home}/lib/*"),
            "org.opensearch.bootstrap.OpenSearch".to_owned(),
            "-Ecluster.name=honeyflow".to_owned(),
            format!("-Enode.name=node-{port}"),
            "-Ehttp.host=127.0.0.1".to_owned(),
            format!("-Ehttp.port={port}"),
            format!("-Etransport.host=127.78.{high}.{low}"),
            "-Etransport.port=9300".to_owned(),
            format!("-Epath.data={data}/store"),
            format!("-Epath.logs={data}/logs"),
        ]);
        Ok(arguments)
    }

    fn ask(&self, _instance: &InstanceHome, port: u16, _pid: u32) -> Result<String, String> {
        // The port is open before the cluster can answer.
        let health = get(port, "/_cluster/health")?;
        if health["status"] == "red" {
            return Err("the cluster's health is red".to_owned());
        }
        let about = get(port, "/")?;
        about["version"]["number"].as_str().map(str::to_owned).ok_or_else(|| format!("no version in {about}"))
    }

    fn url(&self, _instance: &InstanceHome, port: u16) -> String {
        format!("http://127.0.0.1:{port}/")
    }
}

/// Sends one GET request over its own connection.
fn get(port: u16, path: &str) -> Result<Value, String> {
    let to_text = |error: std::io::Error| error.to_string();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIME).map_err(to_text)?;
    stream.set_read_timeout(Some(ANSWER_TIME)).map_err(to_text)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(to_text)?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).map_err(to_text)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer has no body")?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(head.lines().next().unwrap_or_default().to_owned());
    }
    serde_json::from_str(body).map_err(|error| format!("{error} in {body}"))
}
