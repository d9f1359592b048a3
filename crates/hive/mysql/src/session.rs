//! One connection, and the transactions on it.
//!
//! A change takes two messages: the first locks and reads, the second writes and commits; what is decided in between is
//! decided under the locks. What can be said in one message is. Every message brings its own settings, so that nothing
//! depends on a session that a pooler may exchange. A node that stands still between the two is cut off by the server,
//! which lets go of its locks.

use futures_util::StreamExt;
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, NodeId, Reply,
    contract::{EventKind, Head},
};

use crate::{
    driver::{AssertSqlSafe, Either, Error, Executor, MySqlConnection, raw_sql},
    literal::{self, signed},
    message::{Answers, At, Message, Told},
    outcome::{self, Answer, Stop},
    row::{self, VIEW},
    schema::{CAUSE_CHARS_MAX, HIVE_MS},
    server::Flavour,
};

/// How long the server waits for a row that another transaction holds. A change of hands may wait for the leader's own
/// transactions; a limit's bucket is never held for long.
pub(crate) const LEASE_LOCK_SECONDS: u32 = 3;
pub(crate) const LIMIT_LOCK_SECONDS: u32 = 1;
/// How long the server waits for the second message of a transaction.
const STALL_SECONDS: u32 = 2;

pub(crate) struct Session {
    connection: MySqlConnection,
    flavour: Flavour,
    /// The hive's name, as a literal.
    pub hive: String,
    /// The tables are of an older version, as they were when it was opened.
    pub outdated: bool,
    /// A transaction is under way.
    open: bool,
    /// A message that commits was sent, and its end was not heard.
    committing: bool,
}

/// What the server has told, what time it was there, and who it is.
pub(crate) struct Heard {
    answers: Answers,
    pub now_ms: u64,
    pub server: String,
}

impl std::ops::Deref for Heard {
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

    /// Whether what was asked last may have been done, though no good answer has come.
    pub fn may_have_committed(&self) -> bool {
        self.committing
    }

    /// Locks and reads follow, in the order node, lease, view, limit.
    pub fn begin(&self, lock_seconds: u32) -> Message {
        let mut message = Message::default();
        message.add(format!(
            "set autocommit = 1, wait_timeout = {STALL_SECONDS}, innodb_lock_wait_timeout = {lock_seconds}, names utf8mb4"
        ));
        message.add("set transaction isolation level read committed");
        message.add("start transaction read write");
        message
    }

    /// Reads follow, all of one moment.
    pub fn snapshot(&self) -> Message {
        let mut message = Message::default();
        message.add(PLAIN);
        message.add("set transaction isolation level repeatable read");
        message.add("start transaction with consistent snapshot, read only");
        message
    }

    /// Sends what [`Session::begin`] has begun. Time is told last: waiting for locks takes time.
    pub async fn ask(&mut self, mut message: Message) -> Answer<Heard> {
        self.open = true;
        let standing = self.add_standing(&mut message);
        let answers = self.tell(message).await?;
        self.heard(answers, standing)
    }

    /// Sends what [`Session::snapshot`] has begun.
    pub async fn read(&mut self, mut message: Message) -> Answer<Heard> {
        self.open = true;
        let standing = self.add_standing(&mut message);
        message.add("commit");
        let answers = self.tell(message).await?;
        self.open = false;
        self.heard(answers, standing)
    }

    /// Ends the transaction within the message; reads may follow.
    pub fn close(&self, message: &mut Message) {
        message.commit();
        message.add(RESET);
    }

    /// Sends what [`Session::close`] has ended.
    pub async fn finish(&mut self, mut message: Message) -> Answer<Heard> {
        self.open = true;
        let standing = self.add_standing(&mut message);
        let answers = self.tell(message).await?;
        self.open = false;
        self.heard(answers, standing)
    }

    /// The second message of a transaction, or its only one.
    pub async fn commit(&mut self, mut message: Message) -> Answer<Answers> {
        self.open = true;
        self.close(&mut message);
        let answers = self.tell(message).await?;
        self.open = false;
        Ok(answers)
    }

    /// Whatever is still under way ends here, and leaves nothing.
    pub async fn end(&mut self) -> Answer<()> {
        if std::mem::take(&mut self.open) {
            let mut message = Message::default();
            message.add("rollback");
            message.add(RESET);
            self.tell(message).await?;
        }
        Ok(())
    }

    /// Statements as they are, outside of any rule of this file.
    pub async fn tell(&mut self, message: Message) -> Answer<Answers> {
        let (text, commit) = message.into_parts();
        self.committing = commit.is_some();
        let mut answers = vec![Told::default()];
        let mut stream = self.connection.fetch_many(raw_sql(AssertSqlSafe(text)));
        while let Some(item) = stream.next().await {
            let answered = answers.len() - 1;
            match item {
                Ok(Either::Right(row)) => answers[answered].rows.push(row),
                Ok(Either::Left(done)) => {
                    answers[answered].changed = done.rows_affected();
                    answers.push(Told::default());
                }
                Err(error) => {
                    // The server stops at the first statement that fails: the commit was not reached, or has failed.
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

    fn add_standing(&self, message: &mut Message) -> At {
        message.add(format!("select {HIVE_MS}, {}, @@global.read_only", self.flavour.lineage()))
    }

    /// A replica tells of the past, and an account with many rights may even write there.
    fn heard(&self, answers: Answers, standing: At) -> Answer<Heard> {
        let Some(row) = answers.first(standing) else { return Err(Stop::Sql(Error::RowNotFound)) };
        let (now_ms, server) = (row::unsigned(row, 0)?, row::required(row, 1)?.to_owned());
        if !matches!(row::text(row, 2)?, None | Some("0" | "OFF")) {
            return Err(Stop::ReadOnly);
        }
        Ok(Heard { answers, now_ms, server })
    }

    /// What time it is there, and who it is.
    pub async fn standing(&mut self) -> Answer<Heard> {
        let mut message = Message::default();
        message.add(PLAIN);
        let standing = self.add_standing(&mut message);
        let answers = self.tell(message).await?;
        self.heard(answers, standing)
    }

    pub fn add_view(&self, message: &mut Message) -> At {
        message.add(format!("select {VIEW} from hive_view where hive = {}", self.hive))
    }

    /// After nodes and leases, before limits. Whoever holds it writes the next versions.
    pub fn lock_view(&self, message: &mut Message) -> At {
        message.add(format!("select {VIEW} from hive_view where hive = {} for update", self.hive))
    }

    /// Until the transaction ends nobody takes the lease.
    pub fn lock_fence(&self, message: &mut Message, fence: &Fence) -> At {
        message.add(format!(
            "select epoch, holder from hive_lease where hive = {} and name = {} lock in share mode",
            self.hive,
            literal::text(fence.lease())
        ))
    }

    /// Hive time as it is, with the view that [`Session::lock_view`] has locked. None of these rows: it is made first.
    pub fn log(&self, heard: &Heard, view: At) -> Answer<Log> {
        let head = heard.head(view)?;
        match head.origin {
            Some(_) => Ok(self.log_from(heard, head.version)),
            None => Err(Stop::NoView),
        }
    }

    pub fn log_from(&self, heard: &Heard, version: u64) -> Log {
        Log { hive: self.hive.clone(), now_ms: heard.now_ms, version, rows: Vec::new() }
    }

    /// The hive's one row, if there is none. Leases without it: something was lost.
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

/// Where nothing is committed by itself, a look would begin a transaction and leave it open.
pub(crate) const PLAIN: &str = "set autocommit = 1, names utf8mb4";
const RESET: &str = "set wait_timeout = default, innodb_lock_wait_timeout = default";

impl Heard {
    pub fn head(&self, view: At) -> Answer<Head> {
        let nobody = Head { hive_ms: self.now_ms, server: self.server.clone(), ..Head::default() };
        Ok(match self.first(view) {
            Some(row) => row::head(row, nobody)?,
            None => nobody,
        })
    }

    pub fn holds(&self, fence: &Fence, at: At) -> Answer<bool> {
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
        let cause = literal::text(clipped(cause));
        self.rows.push(format!("({hive}, {version}, {at_ms}, '{kind}', {node}, {name}, {epoch}, {cause})"));
    }

    /// Beyond every version that anyone can have seen.
    pub fn jump(&mut self) {
        self.version = self.version.max(self.now_ms.saturating_sub(1));
    }

    /// `and`: more that changes in the same row.
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

/// A reason may be of any length; its column is not.
pub(crate) fn clipped(cause: &str) -> &str {
    cause.char_indices().nth(CAUSE_CHARS_MAX).map_or(cause, |(end, _)| &cause[..end])
}

pub(crate) fn stale(fence: &Fence) -> Reply {
    Reply::Stale(vec![fence.lease().clone()])
}
