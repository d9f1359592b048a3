//! Cassandra: a small heap, everything that is written kept for a restart. Alone it wants a password; of several nodes
//! none does, since who may log in would be kept at one of them. There is no Debian package; its jars come from Maven
//! Central, checked by one sum over all of them.

mod certificates;
pub mod native;

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

pub use certificates::ROOTS;

use super::maven::Artifact;
use super::{Absent, Place, Recipe, program, shown, words};
use crate::error::Error;
use crate::record::write_private;

pub struct Cassandra {
    member: Option<Member>,
}

/// One node of several. All have the same port, each an address of its own.
#[derive(Clone, Copy)]
pub struct Member {
    /// From 1 on.
    pub number: u8,
    /// How many there are at the beginning; a later one joins those.
    pub founders: u8,
    pub port: u16,
}

impl Member {
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 0, self.number)
    }

    fn joins(self) -> bool {
        self.number > self.founders
    }

    /// Where it can be asked about itself by Java's own means.
    pub fn management_port(self) -> u16 {
        self.port - 10_000 + u16::from(self.number)
    }
}

impl Cassandra {
    pub fn alone() -> Self {
        Self { member: None }
    }

    pub fn among_others(member: Member) -> Self {
        Self { member: Some(member) }
    }

    /// What the server's own tools need, too.
    pub fn tool_arguments() -> Result<Vec<String>, Error> {
        let mut arguments = opened();
        arguments.extend(["-cp".to_owned(), format!("{}/*", shown(&JARS.provide()?))]);
        Ok(arguments)
    }
}

fn opened() -> Vec<String> {
    let exports = EXPORTS.map(|package| format!("--add-exports={package}=ALL-UNNAMED"));
    let opens = OPENS.map(|package| format!("--add-opens={package}=ALL-UNNAMED"));
    exports.into_iter().chain(opens).collect()
}

const USER: &str = "honeyflow";

const JARS: Artifact = Artifact {
    name: "cassandra",
    group: "org.apache.cassandra",
    artifact: "cassandra-all",
    version: "5.0.9",
    packing: "jar",
    sum: "1a9f2968d1b7c3e85249cb365983ec626aff3d07186da41cd211174ffe3a6328",
};

const JVM: [&str; 17] = [
    "-ea",
    "-da:net.openhft...",
    "-Xss256k",
    "-Xms128m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    // It is started far more often than it runs for long.
    "-XX:TieredStopAtLevel=1",
    "-XX:+PerfDisableSharedMem",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    // Without it, its log ends when it is up.
    "-Dcassandra-foreground=yes",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra.shutdown_announce_in_ms=0",
    // Tests log in often; the usual hash takes a tenth of a second each time.
    "-Dcassandra.auth_bcrypt_gensalt_log2_rounds=4",
];

/// What Java would otherwise keep from it.
const EXPORTS: [&str; 9] = [
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "java.base/java.lang.ref",
    "jdk.unsupported/sun.misc",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.attach/sun.tools.attach",
];
const OPENS: [&str; 15] = [
    "java.base/java.lang.module",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "jdk.management/com.sun.management.internal",
    "java.base/sun.nio.ch",
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.lang.reflect",
    "jdk.compiler/com.sun.tools.javac",
    "java.base/java.util",
    "java.base/java.lang",
];

const LOGBACK: &str = r#"<configuration scan="false">
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="STDOUT"/></root>
</configuration>
"#;

impl Recipe for Cassandra {
    fn program(&self) -> Result<PathBuf, Absent> {
        // Needed only until the jars are there.
        if !JARS.is_there() {
            program("mvn")?;
        }
        program("java")
    }

    /// Not root: it would lock the whole of its memory.
    fn accounts(&self) -> &'static [&'static str] {
        &["cassandra", "nobody"]
    }

    fn make_data(&self, _place: &Place, _empty: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn arguments(&self, place: &Place, port: u16) -> Result<Vec<String>, Error> {
        let jars = JARS.provide()?;
        let write = |name: &str, text: &str| {
            let path = place.folder.join(name);
            write_private(&path, text.as_bytes())?;
            place.account.own(&path).map(|()| shown(&path))
        };
        let logback = write("logback.xml", LOGBACK)?;
        // Its port is in the name, so that a command line tells whether the settings are still the right ones.
        let keys = certificates::provide(place)?;
        let settings = write(&format!("{port}.yaml"), &self.settings(port, &shown(&keys)))?;
        let data = shown(&place.data());
        let mut arguments = words(JVM);
        arguments.extend(opened());
        if let Some(member) = self.member {
            arguments.push(format!("-Dcassandra.jmx.local.port={}", member.management_port()));
        }
        // One that joins must have heard of the others before it asks them for its part.
        let ring_delay = if self.member.is_some_and(Member::joins) { 5000 } else { 0 };
        arguments.extend([
            format!("-javaagent:{}/jamm-0.4.0.jar", shown(&jars)),
            format!("-Dcassandra.config=file://{settings}"),
            format!("-Dcassandra.storagedir={data}"),
            format!("-Dcassandra.logdir={data}"),
            format!("-Dlogback.configurationFile={logback}"),
            format!("-Dcassandra.ring_delay_ms={ring_delay}"),
            "-cp".to_owned(),
            format!("{}/*", shown(&jars)),
            "org.apache.cassandra.service.CassandraDaemon".to_owned(),
        ]);
        Ok(arguments)
    }

    fn ask(&self, place: &Place, port: u16, _pid: u32) -> Result<String, String> {
        if self.member.is_some() {
            return native::Client::connect(self.address(), port)?.version();
        }
        // An open port is early: the login works about a second later.
        match native::Client::login(port, USER, &place.secret) {
            Ok(mut client) => client.version(),
            Err(why) => {
                let mut first = native::Client::login(port, "cassandra", "cassandra").map_err(|_| why)?;
                let role = format!(
                    "CREATE ROLE IF NOT EXISTS {USER} WITH PASSWORD = '{}' AND SUPERUSER = true AND LOGIN = true",
                    place.secret
                );
                first.run(&role)?;
                let mut own = native::Client::login(port, USER, &place.secret)?;
                // The password that everybody knows opens nothing from now on.
                own.run("ALTER ROLE cassandra WITH SUPERUSER = false AND LOGIN = false")?;
                own.version()
            }
        }
    }

    fn url(&self, place: &Place, port: u16) -> String {
        match self.member {
            None => format!("cassandra://{USER}:{}@127.0.0.1:{port}/", place.secret),
            Some(member) => format!("cassandra://{}:{port}/", member.address()),
        }
    }

    fn address(&self) -> Ipv4Addr {
        self.member.map_or(Ipv4Addr::LOCALHOST, Member::address)
    }
}

/// Between nodes they need a second port; addresses of their own, made of the first, keep those apart.
fn between(number: u8, port: u16) -> Ipv4Addr {
    let [high, low] = port.to_be_bytes();
    Ipv4Addr::new(127, 77 + number, high, low)
}

impl Cassandra {
    fn settings(&self, port: u16, keys: &str) -> String {
        let (number, founders) = self.member.map_or((0, 0..=0), |member| (member.number, 1..=member.founders));
        let seeds: Vec<String> = founders.map(|founder| between(founder, port).to_string()).collect();
        let (authenticator, authorizer) = match self.member {
            None => ("PasswordAuthenticator", "CassandraAuthorizer"),
            Some(_) => ("AllowAllAuthenticator", "AllowAllAuthorizer"),
        };
        let mut yaml = String::new();
        let lines = [
            ("cluster_name", "honeyflow"),
            ("num_tokens", "16"),
            ("partitioner", "org.apache.cassandra.dht.Murmur3Partitioner"),
            ("endpoint_snitch", "SimpleSnitch"),
            ("commitlog_sync", "periodic"),
            ("commitlog_sync_period", "10000ms"),
            ("listen_address", &between(number, port).to_string()),
            ("rpc_address", &self.address().to_string()),
            ("storage_port", "7000"),
            ("native_transport_port", &port.to_string()),
            ("auto_bootstrap", if self.member.is_some_and(Member::joins) { "true" } else { "false" }),
            ("authenticator", authenticator),
            ("authorizer", authorizer),
            ("role_manager", "CassandraRoleManager"),
            // A node that is gone is known to be gone in twelve seconds instead of twenty.
            ("phi_convict_threshold", "5"),
            // Limits follow the heap, and this one is small.
            ("native_transport_max_request_data_in_flight", "128MiB"),
            ("native_transport_max_request_data_in_flight_per_ip", "64MiB"),
            ("native_transport_max_message_size", "16MiB"),
        ];
        for (name, value) in lines {
            let _ = writeln!(yaml, "{name}: {value}");
        }
        // With TLS for those who want it.
        yaml += "client_encryption_options:\n  enabled: true\n  optional: true\n  store_type: PKCS12\n";
        let _ = writeln!(yaml, "  keystore_password: {}", certificates::STORE_PASSWORD);
        let _ = writeln!(yaml, "  keystore: {keys}");
        yaml += "seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    parameters:\n";
        let _ = writeln!(yaml, "      - seeds: \"{}\"", seeds.join(","));
        yaml
    }
}
