//! The options of sockets, and the operating system's errors.

use std::time::Duration;

use honeyflow_cassandra::Connection;
use honeyflow_cassandra::connection::{Settings, bound_dead_peers};
use tokio::net::{TcpListener, TcpStream};

use super::limits;

#[tokio::test]
async fn pl_14_a_refused_connect_is_known_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = Connection::connect(address, &Settings::default(), limits()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{address} could not be connected to"));
    // The pool reads the system's error, and retries sooner after a refused connect.
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<std::io::Error>()).unwrap();
    assert_eq!(source.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// The time is shorter than the kernel's unit of keepalives, which is one second.
#[tokio::test]
async fn cq_16_a_dead_peer_may_be_noticed_within_less_than_a_second() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let short = Duration::from_millis(300);
    bound_dead_peers(&stream, short).unwrap();
    let socket = socket2::SockRef::from(&stream);
    assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(1));
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(short));
}
