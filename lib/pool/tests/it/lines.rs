//! The connector for [`crate::node`]. Each line has a number and gets one answer, so that a connection can be shared.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use honeyflow_pool::{
    Connection, Connector, Dial, InFlight, Limits, Loan, Notice, Server, ServerId, SettingsError, Tcp, Verdict,
    settings::Table,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::tcp::OwnedWriteHalf,
    sync::{mpsc, oneshot, watch},
    task::AbortHandle,
    time::Instant,
};

#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("the stream failed")]
    Io(#[from] std::io::Error),
    #[error("the connection is gone")]
    Gone,
    #[error("the server answered {0}")]
    Refused(String),
    #[error("the server is overloaded")]
    Overloaded,
    #[error("the login was refused")]
    Login,
    #[error("the server speaks version {0}")]
    Version(String),
    #[error("the server greeted with {0:?}")]
    Nonsense(String),
}

#[derive(Clone, Default)]
pub struct Lines {
    pub streams: u32,
    /// How many of the next connects panic.
    pub panics: Arc<AtomicU32>,
    /// While true, each connect fails with a refused login.
    pub refuses_login: Arc<AtomicBool>,
    /// The number of connects that got a greeting.
    pub greeted: Arc<AtomicU64>,
    /// The limits of the last connect.
    pub limits: Arc<Mutex<Option<Limits>>>,
    /// The connector's part of the settings. A table `wrong` is refused, any other is accepted.
    pub told: Arc<Mutex<Table>>,
}

impl Lines {
    pub fn exclusive() -> Lines {
        Lines { streams: 1, ..Lines::default() }
    }

    pub fn shared(streams: u32) -> Lines {
        Lines { streams, ..Lines::default() }
    }
}

type PendingAnswers = HashMap<u64, (oneshot::Sender<String>, Option<InFlight<Lines>>)>;

pub struct Line {
    streams: u32,
    writer: tokio::sync::Mutex<OwnedWriteHalf>,
    pending: Arc<Mutex<PendingAnswers>>,
    next: AtomicU64,
    gone: watch::Receiver<bool>,
    reader: AbortHandle,
    pub notices: Mutex<Option<mpsc::Receiver<Notice>>>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Line {
    pub async fn ask(&self, command: &str) -> Result<String, LineError> {
        self.send(command, None).await
    }

    async fn send(&self, command: &str, flight: Option<InFlight<Lines>>) -> Result<String, LineError> {
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        let (answer, answered) = oneshot::channel();
        self.pending.lock().unwrap().insert(id, (answer, flight));
        self.writer.lock().await.write_all(format!("{id} {command}\n").as_bytes()).await?;
        let answer = answered.await.map_err(|_| LineError::Gone)?;
        match answer.as_str() {
            "overloaded" => Err(LineError::Overloaded),
            text if text.starts_with('!') => Err(LineError::Refused(answer)),
            _ => Ok(answer),
        }
    }
}

/// Sends a command like a transport does: the request is in flight until its answer has come, even if the caller has
/// gone.
pub async fn ask(mut loan: Loan<Lines>, command: &str) -> Result<String, LineError> {
    let flight = loan.in_flight();
    loan.send(command, Some(flight)).await
}

impl Connection for Line {
    fn streams(&self) -> u32 {
        self.streams
    }

    fn broken(&self) -> bool {
        *self.gone.borrow()
    }

    async fn closed(&self) {
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }

    async fn probe(&self, by: Instant) -> bool {
        tokio::time::timeout_at(by, self.ask("ping")).await.is_ok_and(|answer| answer.is_ok())
    }

    async fn close(&self, _: Instant) {
        self.reader.abort();
        self.pending.lock().unwrap().clear();
        let _ = self.writer.lock().await.shutdown().await;
    }
}

impl Connector for Lines {
    type Connection = Line;
    type Error = LineError;

    async fn connect(&self, to: &Server, limits: Limits) -> Result<Line, LineError> {
        if self.panics.load(Ordering::SeqCst) > 0 {
            self.panics.fetch_sub(1, Ordering::SeqCst);
            panic!("the connector has a bug");
        }
        *self.limits.lock().unwrap() = Some(limits);
        let stream = Tcp.dial(to.address, limits.tcp).await?;
        let (reader, writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        let greeting = lines.next_line().await?.ok_or(LineError::Gone)?;
        match greeting.strip_prefix("hello") {
            Some("") if !self.refuses_login.load(Ordering::SeqCst) => {}
            Some("") => return Err(LineError::Login),
            Some(version) => return Err(LineError::Version(version.trim().to_owned())),
            None if greeting == "denied" => return Err(LineError::Login),
            None => return Err(LineError::Nonsense(greeting)),
        }
        self.greeted.fetch_add(1, Ordering::SeqCst);
        let pending: Arc<Mutex<PendingAnswers>> = Arc::default();
        let (gone, is_gone) = watch::channel(false);
        let (notices, heard) = mpsc::channel(64);
        let answers = pending.clone();
        let reading = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some((id, answer)) = line.split_once(' ') {
                    let waiting = id.parse().ok().and_then(|id: u64| answers.lock().unwrap().remove(&id));
                    if let Some((waiting, flight)) = waiting {
                        if let Some(flight) = flight {
                            flight.answered();
                        }
                        let _ = waiting.send(answer.to_owned());
                    }
                    continue;
                }
                let notice = line.split_once('@').and_then(|(what, address)| {
                    let address = address.parse().ok()?;
                    Some(match what {
                        "up" => Notice::Up(address),
                        "down" => Notice::Down(address),
                        "removed" => Notice::Removed(address),
                        _ => Notice::Added(address),
                    })
                });
                if let Some(notice) = notice {
                    let _ = notices.try_send(notice);
                }
            }
            gone.send_replace(true);
            answers.lock().unwrap().clear();
        });
        Ok(Line {
            streams: self.streams,
            writer: tokio::sync::Mutex::new(writer),
            pending,
            next: AtomicU64::new(1),
            gone: is_gone,
            reader: reading.abort_handle(),
            notices: Mutex::new(Some(heard)),
        })
    }

    async fn watch(&self, on: &Line) -> Result<mpsc::Receiver<Notice>, LineError> {
        on.ask("watch").await?;
        let heard = on.notices.lock().unwrap().take();
        heard.ok_or(LineError::Gone)
    }

    async fn discover(&self, on: &Line) -> Result<Vec<Server>, LineError> {
        let answer = on.ask("who").await?;
        let named = answer.split(',').filter_map(|part| {
            let (id, address) = part.split_once('=')?;
            Some(Server { id: ServerId::new(id), ..Server::at(address.parse().ok()?) })
        });
        Ok(named.collect())
    }

    fn configure(&self, own: &Table) -> Result<(), SettingsError> {
        if own.contains_key("wrong") {
            return Err(SettingsError::of("wrong", "is wrong"));
        }
        *self.told.lock().unwrap() = own.clone();
        Ok(())
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![("greeted", self.greeted.load(Ordering::SeqCst))]
    }

    fn verdict(&self, error: &LineError) -> Verdict {
        match error {
            LineError::Io(_) | LineError::Gone | LineError::Nonsense(_) => Verdict::lost(),
            LineError::Version(_) => Verdict::unreachable(),
            LineError::Login => Verdict::login(),
            LineError::Refused(_) => Verdict::refused(42),
            LineError::Overloaded => Verdict {
                kind: honeyflow_pool::Kind::Server(0x1001),
                executed: honeyflow_pool::Execution::No,
                retry_after: Some(std::time::Duration::from_secs(1)),
                ..Verdict::lost()
            },
        }
    }
}
