//! Resilient access to a cluster of servers.
//!
//! A protocol implements [`Connector`] and [`Connection`]. The pool does everything else: it finds the servers, keeps
//! connections to each, replaces those that die, lends them fairly and within deadlines, and avoids servers that are
//! slow or silent. It can be watched, reconfigured and drained while it runs.
//!
//! ```
//! use std::{io, sync::atomic::{AtomicBool, Ordering}, time::Duration};
//! use honeyflow_pool::{
//!     Connection, Connector, Dial, Drain, Limits, Pool, RequestOptions, Server, Settings, Tcp, Verdict,
//! };
//! use tokio::{io::{AsyncReadExt, AsyncWriteExt}, net::{TcpListener, TcpStream}, sync::Mutex, time::Instant};
//!
//! /// The client sends one byte, the server sends it back.
//! struct Echo;
//!
//! struct Wire {
//!     stream: Mutex<TcpStream>,
//!     broken: AtomicBool,
//! }
//!
//! impl Wire {
//!     async fn echo(&self, byte: u8) -> io::Result<u8> {
//!         let mut stream = self.stream.lock().await;
//!         let answer = async {
//!             stream.write_u8(byte).await?;
//!             stream.read_u8().await
//!         };
//!         answer.await.inspect_err(|_| self.broken.store(true, Ordering::Relaxed))
//!     }
//! }
//!
//! impl Connection for Wire {
//!     fn broken(&self) -> bool {
//!         self.broken.load(Ordering::Relaxed)
//!     }
//!     async fn closed(&self) {
//!         std::future::pending().await // this protocol notices at the next use or heartbeat
//!     }
//!     async fn probe(&self, by: Instant) -> bool {
//!         tokio::time::timeout_at(by, self.echo(0)).await.is_ok_and(|answer| answer.is_ok())
//!     }
//!     async fn close(&self, _by: Instant) {
//!         let _ = self.stream.lock().await.shutdown().await;
//!     }
//! }
//!
//! impl Connector for Echo {
//!     type Connection = Wire;
//!     type Error = io::Error;
//!
//!     async fn connect(&self, to: &Server, limits: Limits) -> io::Result<Wire> {
//!         let stream = Tcp.dial(to.address, limits.tcp).await?;
//!         Ok(Wire { stream: Mutex::new(stream), broken: AtomicBool::new(false) })
//!     }
//!     async fn discover(&self, _on: &Wire) -> io::Result<Vec<Server>> {
//!         Ok(Vec::new()) // never asked: discovery is off
//!     }
//!     fn verdict(&self, _error: &io::Error) -> Verdict {
//!         Verdict::lost()
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let listener = TcpListener::bind("127.0.0.1:0").await?;
//! # let address = listener.local_addr()?;
//! # tokio::spawn(async move {
//! #     while let Ok((mut stream, _)) = listener.accept().await {
//! #         tokio::spawn(async move {
//! #             let (mut from, mut to) = stream.split();
//! #             tokio::io::copy(&mut from, &mut to).await
//! #         });
//! #     }
//! # });
//! let settings = Settings { servers: vec![address.to_string()], discovery: false, ..Settings::default() };
//! let pool = Pool::start(Echo, settings)?;
//!
//! // With a closure: the loan always comes back, and a failed try may be repeated on another server.
//! let options = RequestOptions::within(Duration::from_secs(2));
//! let answer = pool.with(options, |wire| async move { wire.echo(7).await }).await?;
//! assert_eq!(answer, 7);
//!
//! // With a guard: for more than one exchange on the same connection.
//! let wire = pool.get(RequestOptions::default()).await?;
//! assert_eq!((wire.echo(1).await?, wire.echo(2).await?), (1, 2));
//! drop(wire);
//!
//! println!("{} connections, {} checkouts", pool.status().open, pool.counters().checkouts);
//! pool.control().close(Drain::within(Duration::from_secs(5))).await;
//! # Ok(())
//! # }
//! ```

pub mod clock;
pub mod connect;
pub mod control;
pub mod core;
mod core_lock;
pub mod error;
#[cfg(test)]
mod interleaving;
mod loan;
mod outage;
mod pool;
mod request_options;
mod run_request;
pub mod server;
pub mod settings;
mod shared;
mod tasks;
#[cfg(feature = "testing")]
pub mod testing;

mod renamed;
mod sync;

pub use connect::{Connection, Connector, Dial, Fault, Limits, Notice, RetryPolicy, Tcp, Verdict};
pub use control::{Changes, Control, Drain, Transition};
pub use core::{
    Change, Class, Counters, DrainReport, DrainTarget, Record, ServerState, ServerStatus, State, Status, Times,
    histogram::Histogram,
};
pub use error::{Error, Execution, Kind, Report};
pub use loan::{DetachedConnection, Get, InFlight, Loan};
pub use outage::{DownServer, LastError, Outage};
pub use pool::Pool;
pub use request_options::RequestOptions;
pub use server::{Server, ServerId};
pub use settings::{CompiledError, CompiledSettings, Functions, Provider, Section, Settings, SettingsError};

#[expect(deprecated, reason = "the old names keep programs compiling that use them")]
pub use renamed::{Again, Compiled, Detached, Down, Drained, Executed, Moved, Next, Trouble, Want};
