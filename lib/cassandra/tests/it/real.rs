//! A real server: the client reads what it really sends.

use std::net::SocketAddr;
use std::sync::Arc;

use honeyflow_cassandra::connection::{Connection, Password, Secret, Settings, Tls, Versions};
use honeyflow_cassandra::error::Cause;
use honeyflow_cassandra::statement::token;
use honeyflow_cassandra::value::{Decimal, Unset, Varint, bind_all};
use honeyflow_cassandra::wire::{Answer, Code, Compression, Notice, Version};
use honeyflow_cassandra::{Batch, Consistency, Statement, Value};
use tokio::time::Instant;
use uuid::Uuid;

use crate::codec::WAYS;
use crate::connection::{PATIENCE, limits, patient, refused};

pub struct RealServer {
    pub address: SocketAddr,
    pub user: String,
    pub password: String,
}

impl RealServer {
    /// Returns `None`, and prints that the test is skipped, if there is no server.
    pub fn server() -> Option<Self> {
        let url = honeyflow_services::cassandra()?.url;
        let (login, place) = url.strip_prefix("cassandra://")?.split_once('@')?;
        let (user, password) = login.split_once(':')?;
        let address = place.trim_end_matches('/').parse().ok()?;
        Some(Self { address, user: user.to_owned(), password: password.to_owned() })
    }

    pub fn settings(&self, version: Version, compression: Compression) -> Settings {
        let login = Password { user: self.user.clone(), password: Secret::Plain(self.password.clone()) };
        let versions = Versions { lowest: version, highest: version };
        Settings { versions, compression, login: Some(Arc::new(login)), ..Settings::default() }
    }

    async fn connect(&self, (version, compression): (Version, Compression)) -> Connection {
        Connection::connect(self.address, &self.settings(version, compression), limits()).await.unwrap()
    }

    /// Creates an empty keyspace for the test.
    async fn keyspace(&self, name: &str) -> Connection {
        let connection = self.connect((Version::V5, Compression::None)).await;
        for statement in [
            format!("DROP KEYSPACE IF EXISTS {name}"),
            format!("CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"),
        ] {
            connection.query(&statement, &patient()).await.unwrap();
        }
        connection
    }
}

async fn run(connection: &Connection, statement: &str) {
    connection.query(statement, &patient()).await.unwrap();
}

#[tokio::test]
async fn cq_2_cq_4_a_real_server_speaks_every_version_and_compression() {
    let Some(real) = RealServer::server() else { return };
    let setup = real.keyspace("every_way").await;
    run(&setup, "CREATE TABLE every_way.t (id int PRIMARY KEY, v blob)").await;
    for (n, way) in (0..).zip(WAYS) {
        let connection = real.connect(way).await;
        assert_eq!((connection.version(), connection.compression()), way);
        let put = Statement::new("INSERT INTO every_way.t (id, v) VALUES (?, ?)");
        let get = Statement::new("SELECT v FROM every_way.t WHERE id = ?");
        let long: Vec<u8> = (0..1_000_000_u32).map(|n| (n.wrapping_mul(n) >> 11) as u8).collect();
        for (id, bytes) in [(n * 2, &b"short"[..]), (n * 2 + 1, &long)] {
            connection.execute(&put, (id, bytes), &patient()).await.unwrap();
            let rows = connection.execute(&get, (id,), &patient()).await.unwrap().into_rows();
            assert_eq!(rows.first::<(&[u8],)>().unwrap(), Some((bytes,)), "{way:?}");
        }
    }
}

#[tokio::test]
async fn cq_2_the_highest_version_of_the_range_is_negotiated() {
    let Some(real) = RealServer::server() else { return };
    let range = Versions { lowest: Version::V4, highest: Version::V5 };
    let settings = Settings { versions: range, ..real.settings(Version::V4, Compression::Snappy) };
    let connection = Connection::connect(real.address, &settings, limits()).await.unwrap();
    assert_eq!((connection.version(), connection.compression()), (Version::V5, Compression::Lz4));
}

#[tokio::test]
async fn values_of_every_type_come_back_as_they_were_bound() {
    let Some(real) = RealServer::server() else { return };
    let setup = real.keyspace("every_type").await;
    run(&setup, "CREATE TYPE every_type.place (street text, zip int)").await;
    let values = [
        ("ascii", Value::Text("plain".to_owned())),
        ("bigint", Value::Bigint(i64::MIN)),
        ("blob", Value::Blob(vec![0, 255, 7])),
        ("boolean", Value::Boolean(true)),
        ("decimal", Value::Decimal(Decimal { scale: 3, unscaled: Varint::from(-12_345) })),
        ("double", Value::Double(-0.1)),
        ("float", Value::Float(1.5)),
        ("int", Value::Int(-7)),
        ("timestamp", Value::Timestamp(1_700_000_000_123)),
        ("uuid", Value::Uuid(Uuid::from_u128(7))),
        ("text", Value::Text("Bienenstöcke".to_owned())),
        ("varint", Value::Varint(Varint(vec![127, 1, 2, 3, 4, 5, 6, 7, 8, 9]))),
        ("inet", Value::Inet("2001:db8::7".parse().unwrap())),
        ("date", Value::Date(-1)),
        ("time", Value::Time(86_399_999_999_999)),
        ("smallint", Value::Smallint(-300)),
        ("tinyint", Value::Tinyint(-8)),
        ("duration", Value::Duration(honeyflow_cassandra::value::Duration { months: -1, days: -2, nanoseconds: -3 })),
        ("list<int>", Value::List(vec![Value::Int(3), Value::Int(1)])),
        ("set<text>", Value::Set(vec![Value::Text("a".to_owned()), Value::Text("b".to_owned())])),
        ("map<text, int>", Value::Map(vec![(Value::Text("k".to_owned()), Value::Int(9))])),
        ("tuple<int, text>", Value::Tuple(vec![Value::Int(4), Value::Null])),
        (
            "frozen<place>",
            Value::User(vec![("street".into(), Value::Text("Wabe".to_owned())), ("zip".into(), Value::Int(1))]),
        ),
        ("vector<float, 3>", Value::Vector([1.0, -2.0, 0.5].map(Value::Float).to_vec())),
    ];
    let columns: Vec<String> = (0..values.len()).map(|at| format!("c{at}")).collect();
    let kinds: Vec<String> = values.iter().zip(&columns).map(|((kind, _), name)| format!("{name} {kind}")).collect();
    run(&setup, &format!("CREATE TABLE every_type.t (id int PRIMARY KEY, {})", kinds.join(", "))).await;
    let (names, marks) = (columns.join(", "), vec!["?"; values.len() + 1].join(", "));
    let put = Statement::new(format!("INSERT INTO every_type.t (id, {names}) VALUES ({marks})"));
    let get = Statement::new(format!("SELECT {names} FROM every_type.t WHERE id = ?"));
    let values: Vec<Value> = values.into_iter().map(|(_, value)| value).collect();
    for way in [(Version::V4, Compression::Lz4), (Version::V5, Compression::None)] {
        let connection = real.connect(way).await;
        let bound: Vec<Value> = std::iter::once(Value::Int(1)).chain(values.iter().cloned()).collect();
        connection.execute(&put, bound, &patient()).await.unwrap();
        let rows = connection.execute(&get, (1_i32,), &patient()).await.unwrap().into_rows();
        assert_eq!(rows.first::<Vec<Value>>().unwrap(), Some(values.clone()));
        let nulls: Vec<Value> = std::iter::once(Value::Int(2)).chain(values.iter().map(|_| Value::Null)).collect();
        connection.execute(&put, nulls, &patient()).await.unwrap();
        let rows = connection.execute(&get, (2_i32,), &patient()).await.unwrap().into_rows();
        assert!(rows.first::<Vec<Value>>().unwrap().unwrap().iter().all(|value| *value == Value::Null));
    }
}

/// PL-166: a server forgets the prepared statements of a table that is altered.
#[tokio::test]
async fn cq_9_cq_10_rows_are_right_while_their_table_changes() {
    let Some(real) = RealServer::server() else { return };
    let setup = real.keyspace("altered").await;
    run(&setup, "CREATE TABLE altered.t (id int PRIMARY KEY, b int)").await;
    run(&setup, "INSERT INTO altered.t (id, b) VALUES (1, 2)").await;
    let all = Statement::new("SELECT * FROM altered.t WHERE id = ?");
    let mut connections = Vec::new();
    for version in [Version::V4, Version::V5] {
        let connection = real.connect((version, Compression::None)).await;
        let rows = connection.execute(&all, (1_i32,), &patient()).await.unwrap().into_rows();
        assert_eq!(rows.first::<(i32, i32)>().unwrap(), Some((1, 2)));
        connections.push(connection);
    }
    // The new column is sorted between the two others: the position of columns changes.
    run(&setup, "ALTER TABLE altered.t ADD a text").await;
    run(&setup, "UPDATE altered.t SET a = 'new' WHERE id = 1").await;
    for connection in &connections {
        for _ in 0..2 {
            let rows = connection.execute(&all, (1_i32,), &patient()).await.unwrap().into_rows();
            let row = rows.iter().next().unwrap().unwrap();
            assert_eq!(row.get::<i32>("b"), Ok(2));
            assert_eq!(row.get::<&str>("a"), Ok("new"), "{}", connection.version());
        }
    }
}

#[tokio::test]
async fn cq_14_pages_batches_and_timestamps_are_the_servers_own() {
    let Some(real) = RealServer::server() else { return };
    let setup = real.keyspace("written").await;
    run(&setup, "CREATE TABLE written.t (id int, n int, v text, PRIMARY KEY (id, n))").await;
    for version in [Version::V4, Version::V5] {
        let connection = real.connect((version, Compression::Lz4)).await;
        let put = Statement::new("INSERT INTO written.t (id, n, v) VALUES (?, ?, ?) USING TIMESTAMP ?");
        let id = i32::from(version.number());
        let mut batch = Batch::unlogged();
        for n in 0..100 {
            batch.push(&put, (id, n, format!("row {n}"), 1000_i64));
        }
        connection.batch(&batch, &patient()).await.unwrap();
        // Within one batch the row with the newer timestamp wins.
        let mut batch = Batch::logged();
        batch.push(&put, (id, 7, "older", 999_i64));
        batch.push(&put, (id, 8, "newer", 1001_i64));
        connection.batch(&batch, &patient()).await.unwrap();

        let get = Statement::new("SELECT n, v FROM written.t WHERE id = ?");
        let mut how = patient().page_size(30);
        let (mut read, mut pages) = (Vec::new(), 0);
        loop {
            let rows = connection.execute(&get, (id,), &how).await.unwrap().into_rows();
            pages += 1;
            read.extend(rows.typed::<(i32, String)>().map(Result::unwrap));
            match rows.next_page() {
                Some(next) => how = how.clone().page(next.clone()),
                None => break,
            }
        }
        assert_eq!((pages, read.len()), (4, 100));
        assert_eq!(read[7], (7, "row 7".to_owned()));
        assert_eq!(read[8], (8, "newer".to_owned()));

        // The timestamp of a request reaches the server unchanged.
        let plain = Statement::new("INSERT INTO written.t (id, n, v) VALUES (?, ?, ?)");
        connection.execute(&plain, (id, 500, "first"), &patient().timestamp(5000)).await.unwrap();
        connection.execute(&plain, (id, 500, "late"), &patient().timestamp(4999)).await.unwrap();
        connection.execute(&plain, (id, 500, Unset), &patient().timestamp(6000)).await.unwrap();
        let times = format!("SELECT v, writetime(v) FROM written.t WHERE id = {id} AND n = 500");
        let rows = connection.query(&times, &patient()).await.unwrap().into_rows();
        assert_eq!(rows.first::<(&str, i64)>().unwrap(), Some(("first", 5000)));
    }
}

#[tokio::test]
async fn conditional_statements_return_whether_they_were_applied() {
    let Some(real) = RealServer::server() else { return };
    let connection = real.keyspace("conditional").await;
    run(&connection, "CREATE TABLE conditional.t (id int PRIMARY KEY, v text)").await;
    let put = Statement::new("INSERT INTO conditional.t (id, v) VALUES (?, ?) IF NOT EXISTS");
    assert!(put.is_conditional());
    for (value, applied) in [("a", true), ("b", false)] {
        let rows = connection.execute(&put, (1, value), &patient()).await.unwrap().into_rows();
        assert_eq!(rows.iter().next().unwrap().unwrap().get::<bool>("[applied]"), Ok(applied));
    }
}

#[tokio::test]
async fn cq_11_tokens_are_those_that_the_server_computes() {
    let Some(real) = RealServer::server() else { return };
    let connection = real.keyspace("placed").await;
    run(&connection, "CREATE TABLE placed.t (a text, b int, c blob, PRIMARY KEY ((a, b), c))").await;
    run(&connection, "CREATE TABLE placed.u (a text PRIMARY KEY)").await;
    let put = Statement::new("INSERT INTO placed.t (c, b, a) VALUES (?, ?, ?)");
    let single = Statement::new("INSERT INTO placed.u (a) VALUES (?)");
    let (put_as, single_as) = (
        connection.prepare(&put, Instant::now() + PATIENCE).await.unwrap(),
        connection.prepare(&single, Instant::now() + PATIENCE).await.unwrap(),
    );
    let mut ours = std::collections::HashMap::new();
    for n in 0..500 {
        let key = "ä".repeat(n % 40) + &n.to_string();
        let values = (&b"c"[..], i32::try_from(n).unwrap(), key.as_str());
        let bound = bind_all(&values, &put_as.parameters).unwrap();
        ours.insert(key.clone(), token(&put_as, &bound).unwrap().0);
        connection.execute(&put, values, &patient()).await.unwrap();
        let bound = bind_all(&(key.as_str(),), &single_as.parameters).unwrap();
        ours.insert(format!("{key} alone"), token(&single_as, &bound).unwrap().0);
        connection.execute(&single, (key.as_str(),), &patient()).await.unwrap();
    }
    let rows = connection.query("SELECT a, token(a, b) FROM placed.t", &patient()).await.unwrap().into_rows();
    let alone = connection.query("SELECT a, token(a) FROM placed.u", &patient()).await.unwrap().into_rows();
    let theirs = rows.typed::<(String, i64)>().map(Result::unwrap);
    let theirs =
        theirs.chain(alone.typed::<(String, i64)>().map(|row| row.map(|(a, t)| (format!("{a} alone"), t)).unwrap()));
    let theirs: std::collections::HashMap<String, i64> = theirs.collect();
    assert_eq!(theirs.len(), 1000);
    assert_eq!(theirs, ours);
}

#[tokio::test]
async fn cq_13_the_server_sends_notices_about_schema_changes() {
    let Some(real) = RealServer::server() else { return };
    let connection = real.keyspace("told").await;
    let mut notices = connection.listen(Instant::now() + PATIENCE).await.unwrap();
    let response = connection.query("CREATE TABLE told.t (id int PRIMARY KEY)", &patient()).await.unwrap();
    let Answer::Schema(change) = response.answer else { panic!("{}", response.answer.name()) };
    assert_eq!((change.target.as_str(), change.name.as_deref()), ("TABLE", Some("t")));
    loop {
        // Other tests change their own keyspaces at the same time.
        match tokio::time::timeout(PATIENCE, notices.recv()).await.unwrap().unwrap() {
            Notice::Schema(received) if received == change => break,
            _ => {}
        }
    }
}

#[tokio::test]
async fn cq_6_the_server_refuses_a_wrong_password_and_says_so() {
    let Some(mut real) = RealServer::server() else { return };
    real.password = "wax".to_owned();
    let cause = refused(real.address, &real.settings(Version::V5, Compression::None), limits()).await;
    assert!(matches!(cause, Cause::Login(_)), "{cause}");
    // The default password of a new server was disabled when this one was started.
    (real.user, real.password) = ("cassandra".to_owned(), "cassandra".to_owned());
    let cause = refused(real.address, &real.settings(Version::V5, Compression::None), limits()).await;
    assert!(matches!(cause, Cause::Login(_)), "{cause}");
    let without_login = Settings { login: None, ..real.settings(Version::V4, Compression::None) };
    assert!(matches!(refused(real.address, &without_login, limits()).await, Cause::Login(_)));
}

#[tokio::test]
async fn cq_5_a_real_server_is_reached_by_tls() {
    let (Some(real), Some(roots)) = (RealServer::server(), honeyflow_services::cassandra_roots()) else { return };
    for (version, compression) in WAYS {
        let tls = Tls { roots: Some(roots.clone()), ..Tls::default() };
        let settings = Settings { tls: Some(tls), ..real.settings(version, compression) };
        let connection = Connection::connect(real.address, &settings, limits()).await.unwrap();
        let rows = connection.query("SELECT ssl_enabled, ssl_protocol FROM system_views.clients", &patient()).await;
        let rows = rows.unwrap().into_rows();
        // This connection is among the secured ones; those of other tests are not secured.
        let secured = rows.typed::<(bool, Option<String>)>().map(Result::unwrap);
        let secured: Vec<_> = secured.filter(|(secured, _)| *secured).collect();
        assert!(secured.iter().any(|(_, protocol)| protocol.as_deref() == Some("TLSv1.3")), "{secured:?}");
    }
    // The issuer of its certificate is not among the roots of this system.
    let stranger = Settings { tls: Some(Tls::default()), ..real.settings(Version::V5, Compression::None) };
    assert!(matches!(refused(real.address, &stranger, limits()).await, Cause::Tls(_)));
    // The certificate contains another name.
    let tls = Tls { roots: Some(roots), name: Some("hive.example".to_owned()), ..Tls::default() };
    let misnamed = Settings { tls: Some(tls), ..real.settings(Version::V5, Compression::None) };
    assert!(matches!(refused(real.address, &misnamed, limits()).await, Cause::Tls(_)));
}

#[tokio::test]
async fn refusals_of_the_server_are_read_with_their_code() {
    let Some(real) = RealServer::server() else { return };
    let connection = real.keyspace("refusing").await;
    run(&connection, "CREATE TABLE refusing.t (id int PRIMARY KEY)").await;
    let code = |statement: &'static str| {
        let connection = connection.clone();
        async move {
            match connection.query(statement, &patient()).await.unwrap_err().cause {
                Cause::Refused(refusal) => refusal.code,
                other => panic!("{other}"),
            }
        }
    };
    assert_eq!(code("SELEC").await, Code::Syntax);
    assert_eq!(code("SELECT * FROM refusing.none").await, Code::Invalid);
    let exists = code("CREATE TABLE refusing.t (id int PRIMARY KEY)").await;
    assert_eq!(exists, Code::AlreadyExists { keyspace: "refusing".to_owned(), table: "t".to_owned() });
    let two = patient().consistency(Consistency::Two);
    let error = connection.query("SELECT * FROM refusing.t", &two).await.unwrap_err();
    let Cause::Refused(refusal) = error.cause else { panic!("two of one replica") };
    assert!(matches!(refusal.code, Code::Unavailable { required: 2, alive: 1, .. }), "{refusal}");
}

#[tokio::test]
async fn a_trace_is_stored_if_it_was_requested() {
    let Some(real) = RealServer::server() else { return };
    let connection = real.connect((Version::V5, Compression::Lz4)).await;
    let response = connection.query("SELECT * FROM system.local", &patient().tracing()).await.unwrap();
    assert!(response.tracing.is_some());
    let without = connection.query("SELECT * FROM system.local", &patient()).await.unwrap();
    assert_eq!(without.tracing, None);
}
