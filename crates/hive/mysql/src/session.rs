//! One connection, and the transactions on it.
//!
//! A change takes two messages: the first locks and reads, the second writes and commits; the node decides in between,
//! under the locks. Where one message is enough, only one is sent. Every message brings its own settings, so that
//! nothing depends on a session, which a pooler may exchange. If a node stalls between the two messages, the server
//! closes its connection and releases its locks.

use futures_util::StreamExt;
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, NodeId, Reply,
    contract::{EventKind, Head},
};

use crate::{
    driver::{AssertSqlSafe, Either, Error, Executor, MySqlConnection, raw_sql},
    literal::{self, signed},
    message::{Answers, Message, StatementIndex, StatementResult},
    outcome::{self, Answer, Stop},
    row::{self, VIEW},
    schema::{CAUSE_CHARS_MAX, HIVE_MS},
    server::Flavour,
};

/// How long the server waits for a row that another transaction has locked. A transfer of a lease may wait for
/// transactions of its holder; the bucket of a limit is never locked for long.
pub(crate) const LEASE_LOCK_SECONDS: u32 = 3;
pub(crate) const LIMIT_LOCK_SECONDS: u32 = 1;
/// How long the server waits for the second message of a transaction.
const STALL_SECONDS: u32 = 2;

pub(crate) struct Session {
    connection: MySqlConnection,
    flavour: Flavour,
    /// The hive's name, as a literal.
    pub hive: String,
    /// Whether the tables had an older version when this connection was opened.
    pub outdated: bool,
    /// Whether a transaction is open.
    open: bool,
    /// Whether a message that commits was sent and its result was not received.
    committing: bool,
}

/// The results of a message, with the server's time and lineage.
pub(crate) struct Response {
    answers: Answers,
    pub now_ms: u64,
    pub server: String,
}

impl std::ops::Deref for Response {
    type Target = Answers;

    fn deref(&self) -> &Answers {
        &self.answers
    }
}

impl Session {
    pub fn new(connection: MySqlConnection, hive: &str) -> Session {
        Session {
            connection,
            flavour: Flavour::Mariadb,
            hive: literal::text(hive),
            outdated: false,
            open: false,
            committing: false,
        }
    }

    pub fn set_flavour(&mut self, flavour: Flavour) {
        self.flavour = flavour;
    }

    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// Whether the last message may have been committed, though no successful answer was received.
    pub fn may_have_committed(&self) -> bool {
        self.committing
    }

    /// Begins a transaction. The caller adds locks and reads, in the order node, lease, view, limit.
    pub fn begin(&self, lock_seconds: u32) -> Message {
        let mut message = Message::default();
        message.add(format!(
            "set autocommit = 1, wait_timeout = {STALL_SECONDS}, innodb_lock_wait_timeout = {lock_seconds}, names utf8mb4"
        ));
        message.add("set transaction isolation level read committed");
        message.add("start transaction read write");
        message
    }

    /// Begins a read-only transaction. The caller adds reads, which all see one snapshot.
    pub fn snapshot(&self) -> Message {
        let mut message = Message::default();
        message.add(PLAIN);
        message.add("set transaction isolation level repeatable read");
        message.add("start transaction with consistent snapshot, read only");
        message
    }

    /// Sends a message of [`Session::begin`]. It reads the time last, after the locks, because waiting for them takes
    /// time.
    pub async fn ask(&mut self, mut message: Message) -> Answer<Response> {
        self.open = true;
        let standing = self.add_time_and_server(&mut message);
        let answers = self.send(message).await?;
        self.check_response(answers, standing)
    }

    /// Sends a message of [`Session::snapshot`].
    pub async fn read(&mut self, mut message: Message) -> Answer<Response> {
        self.open = true;
        let standing = self.add_time_and_server(&mut message);
        message.add("commit");
        let answers = self.send(message).await?;
        self.open = false;
        self.check_response(answers, standing)
    }

    /// Adds the commit to the message; reads may follow.
    pub fn add_commit(&self, message: &mut Message) {
        message.commit();
        message.add(RESET);
    }

    /// Sends a message to which [`Session::add_commit`] has added the commit.
    pub async fn finish(&mut self, mut message: Message) -> Answer<Response> {
        self.open = true;
        let standing = self.add_time_and_server(&mut message);
        let answers = self.send(message).await?;
        self.open = false;
        self.check_response(answers, standing)
    }

    /// Commits: sends the second message of a transaction, or its only one.
    pub async fn commit(&mut self, mut message: Message) -> Answer<Answers> {
        self.open = true;
        self.add_commit(&mut message);
        let answers = self.send(message).await?;
        self.open = false;
        Ok(answers)
    }

    /// Rolls back the transaction, if one is open.
    pub async fn roll_back(&mut self) -> Answer<()> {
        if std::mem::take(&mut self.open) {
            let mut message = Message::default();
            message.add("rollback");
            message.add(RESET);
            self.send(message).await?;
        }
        Ok(())
    }

    /// Sends a message as it is. It does not track whether a transaction is open.
    pub async fn send(&mut self, message: Message) -> Answer<Answers> {
        let (text, commit) = message.into_parts();
        self.committing = commit.is_some();
        let mut answers = vec![StatementResult::default()];
        let mut stream = self.connection.fetch_many(raw_sql(AssertSqlSafe(text)));
        while let Some(item) = stream.next().await {
            let answered = answers.len() - 1;
            match item {
                Ok(Either::Right(row)) => answers[answered].rows.push(row),
                Ok(Either::Left(done)) => {
                    answers[answered].changed = done.rows_affected();
                    answers.push(StatementResult::default());
                }
                Err(error) => {
                    // The server stops at the first statement that fails: the commit was not reached, or it failed.
                    let done = commit.is_some_and(|commit| answered > commit);
                    self.committing &= done || !outcome::is_answer(&error);
                    return Err(Stop::Sql(error));
                }
            }
        }
        answers.pop();
        self.committing = false;
        Ok(Answers::new(answers))
    }

    fn add_time_and_server(&self, message: &mut Message) -> StatementIndex {
        message.add(format!("select {HIVE_MS}, {}, @@global.read_only", self.flavour.lineage()))
    }

    /// Refuses the results of a read-only server: a replica shows old data, and an account with many rights could even
    /// write there.
    fn check_response(&self, answers: Answers, standing: StatementIndex) -> Answer<Response> {
        let Some(row) = answers.first(standing) else { return Err(Stop::Sql(Error::RowNotFound)) };
        let (now_ms, server) = (row::unsigned(row, 0)?, row::required(row, 1)?.to_owned());
        if !matches!(row::text(row, 2)?, None | Some("0" | "OFF")) {
            return Err(Stop::ReadOnly);
        }
        Ok(Response { answers, now_ms, server })
    }

    /// Reads only the server's time and lineage.
    pub async fn read_time_and_server(&mut self) -> Answer<Response> {
        let mut message = Message::default();
        message.add(PLAIN);
        let standing = self.add_time_and_server(&mut message);
        let answers = self.send(message).await?;
        self.check_response(answers, standing)
    }

    pub fn add_view(&self, message: &mut Message) -> StatementIndex {
        message.add(format!("select {VIEW} from hive_view where hive = {}", self.hive))
    }

    /// Locks the view, after nodes and leases and before limits. The transaction that holds it writes the next
    /// versions.
    pub fn lock_view(&self, message: &mut Message) -> StatementIndex {
        message.add(format!("select {VIEW} from hive_view where hive = {} for update", self.hive))
    }

    /// Locks the lease of the fence: no other node takes it until the transaction ends.
    pub fn lock_fence(&self, message: &mut Message, fence: &Fence) -> StatementIndex {
        message.add(format!(
            "select epoch, holder from hive_lease where hive = {} and name = {} lock in share mode",
            self.hive,
            literal::text(fence.lease())
        ))
    }

    /// Starts the log of events, after the version of the view that [`Session::lock_view`] has locked. If the view is
    /// missing, it has to be made first.
    pub fn log(&self, heard: &Response, view: StatementIndex) -> Answer<Log> {
        let head = heard.head(view)?;
        match head.origin {
            Some(_) => Ok(self.log_from(heard, head.version)),
            None => Err(Stop::NoView),
        }
    }

    pub fn log_from(&self, heard: &Response, version: u64) -> Log {
        Log { hive: self.hive.clone(), now_ms: heard.now_ms, version, rows: Vec::new() }
    }

    /// Makes the view, the one row of the hive, if it is missing. Where leases exist without a view, rows were lost:
    /// the lineage then begins now.
    pub async fn make_view(&mut self) -> Answer<()> {
        let (hive, server, origin) = (&self.hive, self.flavour.lineage(), uuid::Uuid::new_v4());
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        message.add(format!(
            "insert ignore into hive_view(hive, origin, lineage, lineage_ms)
             select {hive}, '{origin}', {server}, if(exists(select 1 from hive_lease where hive = {hive}), {HIVE_MS}, 0)"
        ));
        self.commit(message).await?;
        Ok(())
    }
}

/// Turns autocommit on. Without it, a plain read would begin a transaction and leave it open.
pub(crate) const PLAIN: &str = "set autocommit = 1, names utf8mb4";
const RESET: &str = "set wait_timeout = default, innodb_lock_wait_timeout = default";

impl Response {
    pub fn head(&self, view: StatementIndex) -> Answer<Head> {
        let empty = Head { hive_ms: self.now_ms, server: self.server.clone(), ..Head::default() };
        Ok(match self.first(view) {
            Some(row) => row::head(row, empty)?,
            None => empty,
        })
    }

    pub fn holds(&self, fence: &Fence, at: StatementIndex) -> Answer<bool> {
        let Some(row) = self.first(at) else { return Ok(false) };
        Ok(fence.holds(row::epoch(row, 0)?, row::node_id_or_null(row, 1)?))
    }
}

/// Events to be written, each under the next version.
pub(crate) struct Log {
    hive: String,
    now_ms: u64,
    version: u64,
    rows: Vec<String>,
}

impl Log {
    pub fn event(&mut self, kind: EventKind, node: Option<NodeId>, lease: Option<(&Name, Epoch)>, cause: &str) {
        self.version += 1;
        let (hive, version, at_ms) = (&self.hive, self.version, self.now_ms);
        let node = literal::id_or_null(node);
        let name = literal::text_or_null(lease.map(|(name, _)| &**name));
        let epoch = lease.map_or_else(|| "null".to_owned(), |(_, epoch)| signed(epoch.0).to_string());
        let cause = literal::text(cut_to_column(cause));
        self.rows.push(format!("({hive}, {version}, {at_ms}, '{kind}', {node}, {name}, {epoch}, {cause})"));
    }

    /// Raises the version above every version that a node can have seen.
    pub fn jump_version(&mut self) {
        self.version = self.version.max(self.now_ms.saturating_sub(1));
    }

    /// Writes the events and the new version. `and` adds further changes of the view's row.
    pub fn write(self, message: &mut Message, and: &str) {
        let Log { hive, version, rows, .. } = self;
        if !rows.is_empty() || !and.is_empty() {
            message.add(format!("update hive_view set version = {version}{and} where hive = {hive}"));
        }
        if !rows.is_empty() {
            message.add(format!(
                "insert into hive_event(hive, version, at_ms, kind, node, lease, epoch, cause) values {}",
                rows.join(", ")
            ));
        }
    }
}

/// Cuts a cause to the length of its column.
pub(crate) fn cut_to_column(cause: &str) -> &str {
    cause.char_indices().nth(CAUSE_CHARS_MAX).map_or(cause, |(end, _)| &cause[..end])
}

pub(crate) fn stale(fence: &Fence) -> Reply {
    Reply::Stale(vec![fence.lease().clone()])
}
