//! The handshake on an open socket.

use std::sync::Arc;
use std::time::Duration;

use cassandra_protocol::frame::message_request::RequestBody;
use honeyflow_cassandra::Malformed;
use honeyflow_cassandra::connection::{Dialogue, Limits, Login, Password, Secret, Settings};
use honeyflow_cassandra::error::Cause;
use honeyflow_cassandra::wire::{Compression, Version};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::{connect, limits, patient, refused, settings, text};
use crate::codec::WAYS;
use crate::scripted::{Reply, Script, refuse};
use crate::speak::{Body, opcode};

#[tokio::test]
async fn cq_2_cq_4_every_version_and_compression_carries_requests() {
    for (version, compression) in WAYS {
        let script = Script::echo();
        let connection = connect(&script, &settings(version, compression)).await.unwrap();
        assert_eq!((connection.version(), connection.compression()), (version, compression));
        let long = format!("SELECT '{}'", "honey ".repeat(50_000));
        for statement in ["SELECT 1", &long] {
            assert_eq!(text(connection.query(statement, &patient()).await.unwrap()), statement);
        }
    }
}

#[tokio::test]
async fn cq_3_the_start_names_this_driver_and_asks_for_overload_errors() {
    let script = Script::echo();
    connect(&script, &settings(Version::V4, Compression::Lz4)).await.unwrap();
    let options = script.options.lock().unwrap().clone();
    let option = |name: &str| options.get(name).map(String::as_str);
    assert_eq!(option("DRIVER_NAME"), Some("honeyflow-cassandra"));
    assert_eq!(option("DRIVER_VERSION"), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(option("THROW_ON_OVERLOAD"), Some("1"));
    assert_eq!(option("COMPRESSION"), Some("lz4"));
}

#[tokio::test]
async fn cq_3_the_keyspace_is_set_before_the_first_request() {
    let script = Script::echo();
    let keyspace = Some("Odd\"name".to_owned());
    let connection = connect(&script, &Settings { keyspace, ..Settings::default() }).await.unwrap();
    connection.query("SELECT 1", &patient()).await.unwrap();
    assert_eq!(script.received(), ["OPTIONS", "STARTUP", "USE \"Odd\"\"name\"", "SELECT 1"]);
    let none = Script::echo().first(|received| match &received.request {
        RequestBody::Query(_) => Some(refuse(0x2200, Body::new())),
        _ => None,
    });
    let with_keyspace = Settings { keyspace: Some("none".to_owned()), ..Settings::default() };
    assert!(matches!(refused(none.listen().await, &with_keyspace, limits()).await, Cause::Refused(_)));
}

#[tokio::test]
async fn cq_2_a_refused_version_is_followed_by_the_next_lower_one() {
    let old = Script { versions: vec![Version::V4], ..Script::echo() };
    let connection = connect(&old, &Settings::default()).await.unwrap();
    assert_eq!(connection.version(), Version::V4);
    assert_eq!(text(connection.query("SELECT 1", &patient()).await.unwrap()), "SELECT 1");
    // A server that replies in the requested version, with an error that refuses it.
    let polite = Script::echo().first(|received| (received.version == Version::V5).then(|| refuse(0x0a, Body::new())));
    assert_eq!(connect(&polite, &Settings::default()).await.unwrap().version(), Version::V4);
}

#[tokio::test]
async fn cq_2_a_server_without_a_common_version_is_reported() {
    let ancient = Script { versions: vec![], foreign_version: 3, ..Script::echo() };
    let cause = refused(ancient.listen().await, &Settings::default(), limits()).await;
    assert!(matches!(cause, Cause::Version { asked: Version::V4, spoken: 3 }), "{cause}");
    let only_v5 = settings(Version::V5, Compression::None);
    let old = Script { versions: vec![Version::V4], ..Script::echo() };
    let cause = refused(old.listen().await, &only_v5, limits()).await;
    assert!(matches!(cause, Cause::Version { asked: Version::V5, spoken: 4 }), "{cause}");
}

#[tokio::test]
async fn cq_4_snappy_becomes_lz4_on_version_5_and_only_offered_compression_is_used() {
    let connection = connect(&Script::echo(), &settings(Version::V5, Compression::Snappy)).await.unwrap();
    assert_eq!(connection.compression(), Compression::Lz4);
    let bare = Script { compression: vec![], ..Script::echo() };
    let connection = connect(&bare, &settings(Version::V4, Compression::Lz4)).await.unwrap();
    assert_eq!(connection.compression(), Compression::None);
    assert_eq!(text(connection.query("SELECT 1", &patient()).await.unwrap()), "SELECT 1");
}

fn password(password: &str) -> Settings {
    let login = Password { user: "bee".to_owned(), password: Secret::Plain(password.to_owned()) };
    Settings { login: Some(Arc::new(login)), ..Settings::default() }
}

#[tokio::test]
async fn cq_6_a_password_logs_in_and_a_wrong_one_is_reported_without_being_shown() {
    for version in [vec![Version::V4], vec![Version::V4, Version::V5]] {
        let script = Script { versions: version, password: Some(("bee", "honey")), ..Script::echo() };
        let connection = connect(&script, &password("honey")).await.unwrap();
        assert_eq!(text(connection.query("SELECT 1", &patient()).await.unwrap()), "SELECT 1");
        let address = script.listen().await;
        let cause = refused(address, &password("wax-and-feathers"), limits()).await;
        assert!(matches!(&cause, Cause::Login(why) if why == "Bad credentials"), "{cause}");
        assert!(!format!("{cause} {cause:?}").contains("wax-and-feathers"));
        let cause = refused(address, &Settings::default(), limits()).await;
        assert!(matches!(&cause, Cause::Login(why) if why.contains("none is configured")), "{cause}");
    }
}

/// A login that answers each challenge with its bytes in reverse order.
#[derive(Debug)]
struct BackwardsLogin;

impl Login for BackwardsLogin {
    fn begin(&self, authenticator: &str) -> Result<Box<dyn Dialogue>, String> {
        if authenticator == "Password" { Ok(Box::new(BackwardsLogin)) } else { Err("another authenticator".to_owned()) }
    }
}

impl Dialogue for BackwardsLogin {
    fn reply(&mut self, challenge: Option<&[u8]>) -> Result<Vec<u8>, String> {
        Ok(challenge.map_or(b"first".to_vec(), |challenge| challenge.iter().rev().copied().collect()))
    }
}

#[tokio::test]
async fn cq_6_other_mechanisms_answer_challenges() {
    let script = Script { password: Some(("", "")), ..Script::echo() }.first(|received| {
        let is_token = |bytes: &[u8]| received.body == Body::new().bytes(Some(bytes)).0;
        match &received.request {
            RequestBody::AuthResponse(_) if is_token(b"first") => {
                Some(Reply::Answer(opcode::AUTH_CHALLENGE, Body::new().bytes(Some(b"abc")).0))
            }
            RequestBody::AuthResponse(_) if is_token(b"cba") => {
                Some(Reply::Answer(opcode::AUTH_SUCCESS, Body::new().bytes(None).0))
            }
            _ => None,
        }
    });
    let own = Settings { login: Some(Arc::new(BackwardsLogin)), ..Settings::default() };
    let connection = connect(&script, &own).await.unwrap();
    assert_eq!(text(connection.query("SELECT 1", &patient()).await.unwrap()), "SELECT 1");
    // A server that never stops sending challenges.
    let endless = Script { password: Some(("", "")), ..Script::echo() }.first(|received| {
        let endless = matches!(received.request, RequestBody::AuthResponse(_));
        endless.then(|| Reply::Answer(opcode::AUTH_CHALLENGE, Body::new().bytes(Some(b"more")).0))
    });
    assert!(matches!(refused(endless.listen().await, &own, limits()).await, Cause::Login(_)));
}

/// A listener that sends these bytes on every connection, and then waits or closes.
async fn listener_sending(bytes: &'static [u8], then_closes: bool) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.write_all(bytes).await;
                if then_closes {
                    // Only the sending half: a reset would drop the bytes that were sent.
                    let _ = stream.shutdown().await;
                }
                std::future::pending::<()>().await;
            });
        }
    });
    address
}

#[tokio::test]
async fn cq_7_a_peer_that_does_not_speak_cql_is_reported_with_its_violation() {
    let web = listener_sending(b"HTTP/1.1 400 Bad Request\r\n\r\n", false).await;
    let cause = refused(web, &Settings::default(), limits()).await;
    assert!(matches!(cause, Cause::Malformed(Malformed::Value { what: "the direction of an answer", .. })), "{cause}");
    let huge = listener_sending(&[0x85, 0, 0, 0, 6, 0x7f, 0xff, 0xff, 0xff], false).await;
    assert!(matches!(refused(huge, &Settings::default(), limits()).await, Cause::Malformed(Malformed::Large { .. })));
    let cut = listener_sending(&[0x85, 0, 0, 0, 6, 0, 0, 0, 99, 1, 2, 3], true).await;
    assert!(matches!(refused(cut, &Settings::default(), limits()).await, Cause::Ended(_)));
    let inside = listener_sending(&[0x85, 0, 0, 0, 6, 0, 0, 0, 3, 0xff, 0xff, 0], false).await;
    assert!(matches!(refused(inside, &Settings::default(), limits()).await, Cause::Malformed(Malformed::Short { .. })));
    let odd = listener_sending(&[0x85, 0, 0, 0, 2, 0, 0, 0, 0], false).await;
    let cause = refused(odd, &Settings::default(), limits()).await;
    assert!(matches!(cause, Cause::Unexpected { asked: "OPTIONS", got: "READY" }), "{cause}");
    let stranger = listener_sending(&[0x85, 0, 0, 9, 6, 0, 0, 0, 2, 0, 0], false).await;
    assert!(matches!(refused(stranger, &Settings::default(), limits()).await, Cause::Stranger(9)));
    let closed = listener_sending(&[], true).await;
    assert!(matches!(refused(closed, &Settings::default(), limits()).await, Cause::Ended(_)));
}

/// PL-164
#[tokio::test]
async fn a_silent_handshake_ends_at_the_limit_and_names_the_unanswered_message() {
    let short = Limits { ready: Duration::from_secs(1), ..limits() };
    let mute = listener_sending(&[], false).await;
    let cause = refused(mute, &Settings::default(), short).await;
    assert!(matches!(cause, Cause::Silent { asked: "OPTIONS", .. }), "{cause}");
    let sleepy =
        Script::echo().first(|received| matches!(received.request, RequestBody::Startup(_)).then_some(Reply::Hang));
    let cause = refused(sleepy.listen().await, &Settings::default(), short).await;
    assert_eq!(cause.to_string(), "did not answer STARTUP within 1s");
    let in_login = Script { password: Some(("bee", "honey")), ..Script::echo() }
        .first(|received| matches!(received.request, RequestBody::AuthResponse(_)).then_some(Reply::Hang));
    let cause = refused(in_login.listen().await, &password("honey"), short).await;
    assert!(matches!(cause, Cause::Silent { asked: "AUTH_RESPONSE", .. }), "{cause}");
}

#[tokio::test]
async fn a_port_without_a_listener_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    assert!(matches!(refused(address, &Settings::default(), limits()).await, Cause::Connect(_)));
}

#[tokio::test]
async fn cq_16_sockets_send_at_once_and_notice_dead_peers() {
    let address = listener_sending(&[], false).await;
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let dead_after = Duration::from_secs(7);
    honeyflow_cassandra::connection::bound_dead_peers(&stream, dead_after).unwrap();
    let socket = socket2::SockRef::from(&stream);
    assert!(stream.nodelay().unwrap() && socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), dead_after);
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(dead_after));
}
