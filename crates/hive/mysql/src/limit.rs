//! Draws and exact takes: reads and writes the rows of buckets, locked in the order of their keys. [`Bucket`] does the
//! arithmetic.

use std::collections::{BTreeMap, BTreeSet};

use honeyflow_event::Name;
use honeyflow_hive::{
    bucket::{Bucket, Reservations},
    contract::limit::{Definition, Denial, DeniedTake, Draw, DrawOutcome, ExactTake, Key, Reply, Rule, UndefinedLimit},
};

use crate::{
    driver::{Error, MySqlRow},
    literal::{self, signed},
    message::{Message, StatementIndex},
    outcome::Answer,
    row,
    schema::HIVE_MS,
    session::{LIMIT_LOCK_SECONDS, Response, Session},
};

/// The keys of the definition in force and of the next one. No bucket has such a key.
pub(crate) const NOW: &str = "";
pub(crate) const NEXT: &str = "next";
/// The columns of a definition. Queries select name and key before them.
const RULE: &str = "version, rate_u, period_ms, burst_u, effective_ms";
/// The columns of a bucket besides its rule.
const COUNTS: [&str; 10] =
    ["pool_u", "pool_ms", "issued_u", "slot", "booked_u", "next_u", "level_u", "asked_u", "weight", "cut_weight"];

pub(crate) type BucketId = (Name, Key);

/// An SQL condition for idle buckets, the same as [`Bucket::is_idle`].
pub(crate) fn is_idle(idle_ms: u64) -> String {
    let idle_ms = signed(idle_ms);
    format!(
        "length(limit_key) = 32 and case
           when rate_u = 0 and effective_ms > 0 then effective_ms <= {HIVE_MS}
           when rate_u = 0 then issued_u = 0
           else {HIVE_MS} - pool_ms >= {idle_ms}
             and ({HIVE_MS} - pool_ms) div period_ms >= (burst_u - pool_u + rate_u - 1) div rate_u
         end"
    )
}

/// The definitions of a limit as stored.
#[derive(Clone, Copy, Default)]
pub(crate) struct StoredDefinitions {
    pub now: Option<Definition>,
    pub next: Option<Definition>,
}

impl StoredDefinitions {
    pub fn in_force(&self, now_ms: u64) -> Option<Definition> {
        Some(Definition::in_force(self.now?, self.next, now_ms))
    }
}

/// Buckets whose rows are locked.
pub(crate) struct Buckets {
    stored: BTreeSet<BucketId>,
    pub rows: BTreeMap<BucketId, Bucket>,
}

impl Buckets {
    fn or_fresh(&mut self, id: &BucketId, fresh: impl FnOnce() -> Bucket) -> &mut Bucket {
        self.rows.entry(id.clone()).or_insert_with(fresh)
    }

    /// Writes all buckets. If another node has made a row meanwhile, the insert fails on the primary key.
    pub fn write(&self, hive: &str, message: &mut Message) {
        for (id, bucket) in &self.rows {
            let Bucket { version, rule, pool_u, pool_ms, issued_u, reset_ms, reservations: booked } = *bucket;
            let Rule { rate_u, period_ms, burst_u } = rule;
            let Reservations { second: slot, now_u, next_u, level_u, asked_u, weight, cut_weight } = booked;
            let [version, rate_u, period_ms, burst_u, reset_ms] =
                [version, rate_u, period_ms, burst_u, reset_ms].map(signed);
            let counts =
                [pool_u, pool_ms, issued_u, slot, now_u, next_u, level_u, asked_u, weight, cut_weight].map(signed);
            let (name, key) = (literal::text(&id.0), id.1);
            message.add(if self.stored.contains(id) {
                let counts: Vec<String> = COUNTS.iter().zip(counts).map(|(of, is)| format!("{of} = {is}")).collect();
                format!(
                    "update hive_limit set version = {version}, rate_u = {rate_u}, period_ms = {period_ms},
                       burst_u = {burst_u}, effective_ms = {reset_ms}, {}
                     where hive = {hive} and name = {name} and limit_key = '{key}'",
                    counts.join(", ")
                )
            } else {
                format!(
                    "insert into hive_limit(hive, name, limit_key, {RULE}, {}) values ({hive}, {name}, '{key}', {version},
                       {rate_u}, {period_ms}, {burst_u}, {reset_ms}, {})",
                    COUNTS.join(", "),
                    counts.map(|count| count.to_string()).join(", ")
                )
            });
        }
    }
}

impl Session {
    pub(crate) fn add_definitions<'n>(
        &self,
        message: &mut Message,
        limits: impl IntoIterator<Item = &'n Name>,
    ) -> StatementIndex {
        let limits: BTreeSet<&str> = limits.into_iter().map(|limit| &**limit).collect();
        message.add(format!(
            "select name, limit_key, {RULE} from hive_limit
             where hive = {} and name in ({}) and limit_key in ('{NOW}', '{NEXT}')",
            self.hive,
            literal::texts(limits)
        ))
    }

    pub(crate) fn add_all_definitions(&self, message: &mut Message) -> StatementIndex {
        let hive = &self.hive;
        message.add(format!(
            "select name, limit_key, {RULE} from hive_limit where hive = {hive} and limit_key in ('{NOW}', '{NEXT}')"
        ))
    }

    /// Locks the buckets in the order of their keys, as every transaction does that locks several.
    pub(crate) fn lock_buckets(&self, message: &mut Message, ids: &BTreeSet<BucketId>) -> StatementIndex {
        let one = |(limit, key): &BucketId| format!("(name = {} and limit_key = '{key}')", literal::text(limit));
        message.add(format!(
            "select name, limit_key, {RULE}, {} from hive_limit force index (primary)
             where hive = {} and ({}) order by name, limit_key for update",
            COUNTS.join(", "),
            self.hive,
            ids.iter().map(one).collect::<Vec<_>>().join(" or ")
        ))
    }

    pub async fn draw(&mut self, draws: &[Draw]) -> Answer<Reply> {
        let ids: BTreeSet<BucketId> = draws.iter().map(|draw| (draw.limit.clone(), draw.key)).collect();
        if ids.is_empty() {
            return Ok(Reply::Drawn { hive_ms: self.read_time_and_server().await?.now_ms, drawn: Vec::new() });
        }
        let mut message = self.begin(LIMIT_LOCK_SECONDS);
        let view = self.add_view(&mut message);
        let definitions = self.add_definitions(&mut message, draws.iter().map(|draw| &draw.limit));
        let buckets = self.lock_buckets(&mut message, &ids);
        let heard = self.ask(message).await?;
        let (hive_ms, lineage_ms) = (heard.now_ms, heard.head(view)?.lineage_ms);
        let (defined, mut buckets) = (heard.defined(definitions)?, heard.buckets(buckets)?);
        let mut drawn: Vec<Result<DrawOutcome, UndefinedLimit>> = Vec::new();
        for draw in draws {
            let Draw { limit, key, .. } = draw;
            let Some(definition) = defined.get(limit).and_then(|defined| defined.in_force(hive_ms)) else {
                drawn.push(Err(UndefinedLimit));
                continue;
            };
            let fresh = || Bucket::fresh(&definition, definition.rule.pool_u(), lineage_ms, hive_ms);
            let bucket = buckets.or_fresh(&(limit.clone(), *key), fresh);
            drawn.push(Ok(bucket.draw_and_reserve(&definition, draw, hive_ms)));
        }
        let mut message = Message::default();
        buckets.write(&self.hive, &mut message);
        self.commit(message).await?;
        Ok(Reply::Drawn { hive_ms, drawn })
    }

    /// Takes from all buckets or from none: a refusal leaves the rows as they were.
    pub async fn exact(&mut self, takes: &[ExactTake], peek: bool) -> Answer<Reply> {
        let ids: BTreeSet<BucketId> = takes.iter().map(|take| (take.limit.clone(), take.key)).collect();
        if ids.is_empty() {
            return Ok(Reply::Admitted { hive_ms: self.read_time_and_server().await?.now_ms, left: Vec::new() });
        }
        let mut message = self.begin(LIMIT_LOCK_SECONDS);
        let view = self.add_view(&mut message);
        let definitions = self.add_definitions(&mut message, takes.iter().map(|take| &take.limit));
        let buckets = self.lock_buckets(&mut message, &ids);
        let heard = self.ask(message).await?;
        let (hive_ms, lineage_ms) = (heard.now_ms, heard.head(view)?.lineage_ms);
        let (defined, mut buckets) = (heard.defined(definitions)?, heard.buckets(buckets)?);
        let mut left = Vec::new();
        for (at, ExactTake { limit, key, cost, window }) in takes.iter().enumerate() {
            let Some(definition) = defined.get(limit).and_then(|defined| defined.in_force(hive_ms)) else {
                return Ok(Reply::Denied(DeniedTake { at, version: 0, why: Denial::Undefined }));
            };
            let fresh = || Bucket::fresh(&definition, definition.rule.burst_u, lineage_ms, hive_ms);
            let bucket = buckets.or_fresh(&(limit.clone(), *key), fresh);
            if let Err(why) = bucket.check_take(&definition, *cost, *window, hive_ms) {
                return Ok(Reply::Denied(DeniedTake { at, version: definition.version, why }));
            }
            if !peek {
                bucket.take(*cost);
            }
            left.push(bucket.left(hive_ms));
        }
        if !peek {
            let mut message = Message::default();
            buckets.write(&self.hive, &mut message);
            self.commit(message).await?;
        }
        Ok(Reply::Admitted { hive_ms, left })
    }

    pub async fn refund(&mut self, takes: &[ExactTake]) -> Answer<Reply> {
        let ids: BTreeSet<BucketId> = takes.iter().map(|take| (take.limit.clone(), take.key)).collect();
        if ids.is_empty() {
            return Ok(Reply::Done);
        }
        let mut message = self.begin(LIMIT_LOCK_SECONDS);
        let buckets = self.lock_buckets(&mut message, &ids);
        let heard = self.ask(message).await?;
        let mut buckets = heard.buckets(buckets)?;
        for ExactTake { limit, key, cost, window } in takes {
            if let Some(bucket) = buckets.rows.get_mut(&(limit.clone(), *key)) {
                bucket.refund(*cost, *window);
            }
        }
        let mut message = Message::default();
        buckets.write(&self.hive, &mut message);
        self.commit(message).await?;
        Ok(Reply::Done)
    }
}

impl Response {
    /// Reads the definitions, by the name of the limit.
    pub fn defined(&self, at: StatementIndex) -> Answer<BTreeMap<Name, StoredDefinitions>> {
        let mut all: BTreeMap<Name, StoredDefinitions> = BTreeMap::new();
        for row in self.rows(at) {
            let of_limit = all.entry(row::required(row, 0)?.into()).or_default();
            let definition = definition(row)?;
            match row::required(row, 1)? {
                NEXT => of_limit.next = Some(definition),
                _ => of_limit.now = Some(definition),
            }
        }
        Ok(all)
    }

    pub fn buckets(&self, at: StatementIndex) -> Answer<Buckets> {
        let mut rows = BTreeMap::new();
        for row in self.rows(at) {
            let Definition { version, rule, effective_ms: reset_ms } = definition(row)?;
            let (pool_u, pool_ms, issued_u) = (row::unsigned(row, 7)?, row::unsigned(row, 8)?, row::unsigned(row, 9)?);
            let id = (row::required(row, 0)?.into(), key(row, 1)?);
            let booked = Reservations {
                second: row::unsigned(row, 10)?,
                now_u: row::unsigned(row, 11)?,
                next_u: row::unsigned(row, 12)?,
                level_u: row::unsigned(row, 13)?,
                asked_u: row::unsigned(row, 14)?,
                weight: row::unsigned(row, 15)?,
                cut_weight: row::unsigned(row, 16)?,
            };
            rows.insert(id, Bucket { version, rule, pool_u, pool_ms, issued_u, reset_ms, reservations: booked });
        }
        Ok(Buckets { stored: rows.keys().cloned().collect(), rows })
    }
}

fn definition(row: &MySqlRow) -> Result<Definition, Error> {
    Ok(Definition {
        version: row::unsigned(row, 2)?,
        rule: Rule {
            rate_u: row::unsigned(row, 3)?,
            period_ms: row::unsigned(row, 4)?,
            burst_u: row::unsigned(row, 5)?,
        },
        effective_ms: row::unsigned(row, 6)?,
    })
}

pub(crate) fn key(row: &MySqlRow, column: usize) -> Result<Key, Error> {
    let digits = row::required(row, column)?;
    u128::from_str_radix(digits, 16).map(Key).map_err(|error| Error::Decode(error.into()))
}
