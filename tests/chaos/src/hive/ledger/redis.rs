//! The log as a list beside the hive's own keys, under the same hash tag. A write is a script that compares the fence
//! first. A script cannot be stopped in its middle, so the process is stopped just before it sends the script.

use honeyflow_hive::{Fence, fence};
use redis::{Client, Connection};

use super::{BeforeCommit, Entry, Ledger};

pub struct RedisLedger {
    connection: Connection,
    hive: String,
}

/// The key of a hive's log.
fn key(hive: &str) -> String {
    format!("{{hive:{hive}}}:chaos")
}

/// Deletes the keys of one hive, as `FLUSHALL` would. The log and the other hives stay: they show what comes of it.
pub fn forget(url: &str, hive: &str) -> Result<(), String> {
    let script = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do \
                    if key ~= ARGV[2] then redis.call('DEL', key) end \
                  end";
    let forget = || {
        let mut connection = Client::open(url)?.get_connection()?;
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(0).arg(format!("{{hive:{hive}}}:*")).arg(key(hive));
        eval.query::<()>(&mut connection)
    };
    forget().map_err(|error| format!("forget a hive: {error}"))
}

impl RedisLedger {
    pub fn open(url: &str, hive: &str) -> Result<RedisLedger, String> {
        let open = || Client::open(url)?.get_connection();
        let connection = open().map_err(|error| format!("open the log: {error}"))?;
        Ok(RedisLedger { connection, hive: hive.to_owned() })
    }
}

impl Ledger for RedisLedger {
    fn append(
        &mut self,
        entry: &Entry,
        fence: Option<&Fence>,
        before_commit: Option<BeforeCommit<'_>>,
    ) -> Result<bool, String> {
        let condition = if fence.is_some() { fence::REDIS } else { "true" };
        let script = format!("if not ({condition}) then return 0 end redis.call('RPUSH', KEYS[3], ARGV[4]) return 1");
        let [epochs, holders] = fence::redis_keys(&self.hive);
        let shown = fence.map(fence::redis_arguments).unwrap_or_default();
        let Entry { lease, epoch, node, at_us } = entry;
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(3).arg(epochs).arg(holders).arg(key(&self.hive)).arg(&shown);
        eval.arg(format!("{lease} {epoch} {node} {at_us}"));
        if let Some(before_commit) = before_commit {
            before_commit();
        }
        eval.query::<i64>(&mut self.connection).map(|written| written == 1).map_err(|error| error.to_string())
    }

    fn read(&mut self) -> Result<Vec<Entry>, String> {
        let range = redis::cmd("LRANGE").arg(key(&self.hive)).arg(0).arg(-1).query::<Vec<String>>(&mut self.connection);
        let lines = range.map_err(|error| format!("read the log: {error}"))?;
        let entry = |line: &String| {
            let words: Vec<&str> = line.split(' ').collect();
            let [lease, epoch, node, at_us] = words[..] else {
                return Err(format!("unexpected line in the log: {line}"));
            };
            let number = |text: &str| text.parse().map_err(|_| format!("unexpected line in the log: {line}"));
            Ok(Entry { lease: lease.to_owned(), epoch: number(epoch)?, node: node.to_owned(), at_us: number(at_us)? })
        };
        lines.iter().map(entry).collect()
    }
}
