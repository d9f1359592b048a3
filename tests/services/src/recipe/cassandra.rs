//! Cassandra with a small heap; all data survives a restart. A single node requires a password. Several nodes require
//! none, because the logins would be stored on one of them. There is no Debian package; its jars come from Maven
//! Central, verified by one checksum over all of them.

mod certificates;
pub mod native;

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

pub use certificates::ROOTS;

use super::maven::Artifact;
use super::{InstanceHome, MissingProgram, Recipe, path_text, program, words};
use crate::error::Error;
use crate::record::write_private;

pub struct Cassandra {
    member: Option<Member>,
}

/// One node of several. All have the same port, and each has its own address.
#[derive(Clone, Copy)]
pub struct Member {
    /// Numbers begin at 1.
    pub number: u8,
    /// The number of nodes at the beginning; a later one joins them.
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

    /// The port of Java's management interface (JMX).
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

    /// The arguments that the server's own tools need, too.
    pub fn tool_arguments() -> Result<Vec<String>, Error> {
        let mut arguments = module_options();
        arguments.extend(["-cp".to_owned(), format!("{}/*", path_text(&JARS.provide()?))]);
        Ok(arguments)
    }
}

fn module_options() -> Vec<String> {
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
    // Starts are far more frequent than long runs.
    "-XX:TieredStopAtLevel=1",
    "-XX:+PerfDisableSharedMem",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    // Without it, the log ends when the server is up.
    "-Dcassandra-foreground=yes",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra.shutdown_announce_in_ms=0",
    // Tests log in often; the default hash takes a tenth of a second each time.
    "-Dcassandra.auth_bcrypt_gensalt_log2_rounds=4",
];

/// Java's internal packages that Cassandra uses.
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
    fn program(&self) -> Result<PathBuf, MissingProgram> {
        // Maven is needed only until the jars are fetched.
        if !JARS.is_fetched() {
            program("mvn")?;
        }
        program("java")
    }

    /// Root would lock all of its memory.
    fn accounts(&self) -> &'static [&'static str] {
        &["cassandra", "nobody"]
    }

    fn make_data(&self, _instance: &InstanceHome, _empty: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn arguments(&self, instance: &InstanceHome, port: u16) -> Result<Vec<String>, Error> {
        let jars = JARS.provide()?;
        let write = |name: &str, text: &str| {
            let path = instance.folder.join(name);
            write_private(&path, text.as_bytes())?;
            instance.account.own(&path).map(|()| path_text(&path))
        };
        let logback = write("logback.xml", LOGBACK)?;
        // The port is in the file's name, so that the command line shows whether the settings are still right.
        let keys = certificates::provide(instance)?;
        let settings = write(&format!("{port}.yaml"), &self.settings(port, &path_text(&keys)))?;
        let data = path_text(&instance.data());
        let mut arguments = words(JVM);
        arguments.extend(module_options());
        if let Some(member) = self.member {
            arguments.push(format!("-Dcassandra.jmx.local.port={}", member.management_port()));
        }
        // A node that joins must know the others before it asks them for its part of the data.
        let ring_delay = if self.member.is_some_and(Member::joins) { 5000 } else { 0 };
        arguments.extend([
            format!("-javaagent:{}/jamm-0.4.0.jar", path_text(&jars)),
            format!("-Dcassandra.config=file://{settings}"),
            format!("-Dcassandra.storagedir={data}"),
            format!("-Dcassandra.logdir={data}"),
            format!("-Dlogback.configurationFile={logback}"),
            format!("-Dcassandra.ring_delay_ms={ring_delay}"),
            "-cp".to_owned(),
            format!("{}/*", path_text(&jars)),
            "org.apache.cassandra.service.CassandraDaemon".to_owned(),
        ]);
        Ok(arguments)
    }

    fn ask(&self, instance: &InstanceHome, port: u16, _pid: u32) -> Result<String, String> {
        if self.member.is_some() {
            return native::Client::connect(self.address(), port)?.version();
        }
        // The port is open about a second before the login works.
        match native::Client::login(port, USER, &instance.secret) {
            Ok(mut client) => client.version(),
            Err(why) => {
                let mut first = native::Client::login(port, "cassandra", "cassandra").map_err(|_| why)?;
                let role = format!(
                    "CREATE ROLE IF NOT EXISTS {USER} WITH PASSWORD = '{}' AND SUPERUSER = true AND LOGIN = true",
                    instance.secret
                );
                first.run(&role)?;
                let mut own = native::Client::login(port, USER, &instance.secret)?;
                // Disables the well-known default login.
                own.run("ALTER ROLE cassandra WITH SUPERUSER = false AND LOGIN = false")?;
                own.version()
            }
        }
    }

    fn url(&self, instance: &InstanceHome, port: u16) -> String {
        match self.member {
            None => format!("cassandra://{USER}:{}@127.0.0.1:{port}/", instance.secret),
            Some(member) => format!("cassandra://{}:{port}/", member.address()),
        }
    }

    fn address(&self) -> Ipv4Addr {
        self.member.map_or(Ipv4Addr::LOCALHOST, Member::address)
    }
}

/// The address for traffic between nodes, which needs a second port. It is made from the first port, so that clusters
/// stay apart.
fn internode_address(number: u8, port: u16) -> Ipv4Addr {
    let [high, low] = port.to_be_bytes();
    Ipv4Addr::new(127, 77 + number, high, low)
}

impl Cassandra {
    fn settings(&self, port: u16, keys: &str) -> String {
        let (number, founders) = self.member.map_or((0, 0..=0), |member| (member.number, 1..=member.founders));
        let seeds: Vec<String> = founders.map(|founder| internode_address(founder, port).to_string()).collect();
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
            ("listen_address", &internode_address(number, port).to_string()),
            ("rpc_address", &self.address().to_string()),
            ("storage_port", "7000"),
            ("native_transport_port", &port.to_string()),
            ("auto_bootstrap", if self.member.is_some_and(Member::joins) { "true" } else { "false" }),
            ("authenticator", authenticator),
            ("authorizer", authorizer),
            ("role_manager", "CassandraRoleManager"),
            // The other nodes notice a dead node after 12 s instead of 20 s.
            ("phi_convict_threshold", "5"),
            // The limits depend on the heap, and this one is small.
            ("native_transport_max_request_data_in_flight", "128MiB"),
            ("native_transport_max_request_data_in_flight_per_ip", "64MiB"),
            ("native_transport_max_message_size", "16MiB"),
        ];
        for (name, value) in lines {
            let _ = writeln!(yaml, "{name}: {value}");
        }
        // TLS is optional.
        yaml += "client_encryption_options:\n  enabled: true\n  optional: true\n  store_type: PKCS12\n";
        let _ = writeln!(yaml, "  keystore_password: {}", certificates::STORE_PASSWORD);
        let _ = writeln!(yaml, "  keystore: {keys}");
        yaml += "seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    parameters:\n";
        let _ = writeln!(yaml, "      - seeds: \"{}\"", seeds.join(","));
        yaml
    }
}
