//! Limits: reads and writes the rows of definitions, buckets and slots. [`Bucket`] does the arithmetic.

use honeyflow_event::Name;
use honeyflow_hive::{
    NodeId,
    bucket::{Bucket, Reservations},
    contract::limit::{
        BucketRow, Definition, Denial, DeniedTake, Draw, DrawOutcome, ExactTake, Key, Limit, MICRO, Reply, Rule, Slots,
        SlotsHeld, UndefinedLimit,
    },
};
use rusqlite::{OptionalExtension, Row, params, types::Type};

use crate::{
    row::{signed, unsigned},
    session::{Answer, Session},
};

/// The keys of the definition in force and of the next one. No bucket has such a key.
const NOW: &str = "";
const NEXT: &str = "next";
const RULE: &str = "version, rate_u, period_ms, burst_u, effective_ms";
const BOOKED: &str = "slot, booked_u, next_u, level_u, asked_u, weight, cut_weight";

fn definition(row: &Row<'_>) -> rusqlite::Result<Definition> {
    Ok(Definition {
        version: unsigned(row, 0)?,
        rule: Rule { rate_u: unsigned(row, 1)?, period_ms: unsigned(row, 2)?, burst_u: unsigned(row, 3)? },
        effective_ms: unsigned(row, 4)?,
    })
}

impl Session<'_> {
    fn defined(&self, limit: &str, key: &str) -> rusqlite::Result<Option<Definition>> {
        self.cached(&format!("select {RULE} from hive_limit where hive = ?1 and name = ?2 and limit_key = ?3"))?
            .query_row([self.hive, limit, key], definition)
            .optional()
    }

    fn in_force(&self, limit: &str) -> rusqlite::Result<Option<Definition>> {
        let Some(now) = self.defined(limit, NOW)? else { return Ok(None) };
        Ok(Some(Definition::in_force(now, self.defined(limit, NEXT)?, self.now_ms)))
    }

    fn bucket(&self, limit: &str, key: Key) -> rusqlite::Result<Option<Bucket>> {
        self.cached(&format!(
            "select {RULE}, pool_u, pool_ms, issued_u, {BOOKED} from hive_limit
             where hive = ?1 and name = ?2 and limit_key = ?3"
        ))?
        .query_row(params![self.hive, limit, key.to_string()], |row| {
            let Definition { version, rule, effective_ms: reset_ms } = definition(row)?;
            let (pool_u, pool_ms, issued_u) = (unsigned(row, 5)?, unsigned(row, 6)?, unsigned(row, 7)?);
            let booked = Reservations {
                second: unsigned(row, 8)?,
                now_u: unsigned(row, 9)?,
                next_u: unsigned(row, 10)?,
                level_u: unsigned(row, 11)?,
                asked_u: unsigned(row, 12)?,
                weight: unsigned(row, 13)?,
                cut_weight: unsigned(row, 14)?,
            };
            Ok(Bucket { version, rule, pool_u, pool_ms, issued_u, reset_ms, reservations: booked })
        })
        .optional()
    }

    fn save(&self, limit: &str, key: &str, bucket: &Bucket) -> rusqlite::Result<()> {
        let Bucket { version, rule, pool_u, pool_ms, issued_u, reset_ms, reservations: booked } = *bucket;
        self.cached(&format!(
            "insert or replace into hive_limit(hive, name, limit_key, version, rate_u, period_ms, burst_u, effective_ms,
               pool_u, pool_ms, issued_u, {BOOKED})
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)"
        ))?
        .execute(params![
            self.hive,
            limit,
            key,
            signed(version),
            signed(rule.rate_u),
            signed(rule.period_ms),
            signed(rule.burst_u),
            signed(reset_ms),
            signed(pool_u),
            signed(pool_ms),
            signed(issued_u),
            signed(booked.second),
            signed(booked.now_u),
            signed(booked.next_u),
            signed(booked.level_u),
            signed(booked.asked_u),
            signed(booked.weight),
            signed(booked.cut_weight)
        ])
        .map(drop)
    }

    fn define(&self, limit: &str, key: &str, definition: &Definition) -> rusqlite::Result<()> {
        let Definition { version, rule, effective_ms: reset_ms } = *definition;
        self.save(limit, key, &Bucket { version, rule, reset_ms, ..Bucket::default() })
    }

    pub fn draw(&self, draws: &[Draw]) -> Answer<Reply> {
        let lineage_ms = self.head()?.lineage_ms;
        let mut drawn = Vec::new();
        for draw in draws {
            drawn.push(self.draw_one(draw, lineage_ms)?.ok_or(UndefinedLimit));
        }
        Ok(Reply::Drawn { hive_ms: self.now_ms, drawn })
    }

    fn draw_one(&self, draw: &Draw, lineage_ms: u64) -> Answer<Option<DrawOutcome>> {
        let Draw { limit, key, .. } = draw;
        let Some(definition) = self.in_force(limit)? else { return Ok(None) };
        let fresh = || Bucket::fresh(&definition, definition.rule.pool_u(), lineage_ms, self.now_ms);
        let mut bucket = self.bucket(limit, *key)?.unwrap_or_else(fresh);
        let drawn = bucket.draw_and_reserve(&definition, draw, self.now_ms);
        self.save(limit, &key.to_string(), &bucket)?;
        Ok(Some(drawn))
    }

    /// Takes from all buckets or from none: a refusal leaves the rows as they were.
    pub fn exact(&self, takes: &[ExactTake], peek: bool) -> Answer<Reply> {
        let lineage_ms = self.head()?.lineage_ms;
        let mut asked: Vec<(&Name, Key, Bucket)> = Vec::new();
        let mut left = Vec::new();
        for (at, ExactTake { limit, key, cost, window }) in takes.iter().enumerate() {
            let Some(definition) = self.in_force(limit)? else {
                return Ok(Reply::Denied(DeniedTake { at, version: 0, why: Denial::Undefined }));
            };
            let place = match asked.iter().position(|(name, of, _)| *name == limit && of == key) {
                Some(place) => place,
                None => {
                    let fresh = || Bucket::fresh(&definition, definition.rule.burst_u, lineage_ms, self.now_ms);
                    asked.push((limit, *key, self.bucket(limit, *key)?.unwrap_or_else(fresh)));
                    asked.len() - 1
                }
            };
            let bucket = &mut asked[place].2;
            if let Err(why) = bucket.check_take(&definition, *cost, *window, self.now_ms) {
                return Ok(Reply::Denied(DeniedTake { at, version: definition.version, why }));
            }
            if !peek {
                bucket.take(*cost);
            }
            left.push(bucket.left(self.now_ms));
        }
        for (limit, key, bucket) in asked.iter().filter(|_| !peek) {
            self.save(limit, &key.to_string(), bucket)?;
        }
        Ok(Reply::Admitted { hive_ms: self.now_ms, left })
    }

    pub fn refund(&self, takes: &[ExactTake]) -> Answer<Reply> {
        for ExactTake { limit, key, cost, window } in takes {
            if let Some(mut bucket) = self.bucket(limit, *key)? {
                bucket.refund(*cost, *window);
                self.save(limit, &key.to_string(), &bucket)?;
            }
        }
        Ok(Reply::Done)
    }

    pub fn slots(&self, node: NodeId, asks: Vec<Slots>) -> Answer<Reply> {
        let id = node.to_string();
        if !self.cached("select 1 from hive_node where hive = ?1 and id = ?2")?.exists([self.hive, &id])? {
            return Ok(Reply::Unfit);
        }
        let mut held = Vec::new();
        for ask in asks {
            held.push(self.set_slots(&id, &ask)?.ok_or(UndefinedLimit));
        }
        Ok(Reply::Slots(held))
    }

    fn set_slots(&self, node: &str, Slots { limit, key, seq, wants }: &Slots) -> Answer<Option<SlotsHeld>> {
        let Some(definition) = self.in_force(limit)? else { return Ok(None) };
        let text = key.to_string();
        let mut bucket = self.bucket(limit, *key)?.unwrap_or_else(|| Bucket::fresh(&definition, 0, 0, self.now_ms));
        let (has, last) = self
            .cached("select has_u, seq from hive_share where hive = ?1 and name = ?2 and limit_key = ?3 and node = ?4")?
            .query_row([self.hive, limit, &text, node], |row| Ok((unsigned(row, 0)? / MICRO, unsigned(row, 1)?)))
            .optional()?
            .unwrap_or_default();
        let wants = if *seq > last { *wants } else { has };
        let held = bucket.slots(&definition, has, wants);
        self.save(limit, &text, &bucket)?;
        self.cached(
            "insert into hive_share(hive, name, limit_key, node, has_u, until_ms, seq) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             on conflict(hive, name, limit_key, node)
               do update set has_u = excluded.has_u, until_ms = excluded.until_ms, seq = excluded.seq",
        )?
        .execute(params![
            self.hive,
            limit,
            text,
            node,
            signed(held.has * MICRO),
            self.now(),
            signed(last.max(*seq))
        ])?;
        Ok(Some(held))
    }

    /// Gives back the slots of a node that has left or was removed.
    pub fn give_back(&self, node: NodeId) -> Answer<()> {
        let id = node.to_string();
        self.cached(
            "update hive_limit set issued_u = max(0, issued_u - s.has_u) from hive_share s
             where s.hive = ?1 and s.node = ?2 and hive_limit.hive = ?1 and hive_limit.name = s.name
               and hive_limit.limit_key = s.limit_key",
        )?
        .execute([self.hive, &id])?;
        self.cached("delete from hive_share where hive = ?1 and node = ?2")?.execute([self.hive, &id])?;
        Ok(())
    }

    pub fn set_limit(&self, limit: &str, was: Option<u64>, rule: Rule, after_ms: u64) -> Answer<Reply> {
        let newest = match self.defined(limit, NEXT)? {
            None => self.defined(limit, NOW)?,
            next => next,
        };
        if newest.map(|newest| newest.version) != was {
            return Ok(Reply::Raced);
        }
        if let Some(next) = newest.filter(|newest| newest.effective_ms > self.now_ms) {
            return Ok(Reply::Pending { effective_ms: next.effective_ms });
        }
        self.make_view()?;
        let version = self
            .cached("update hive_view set limits = limits + 1 where hive = ?1 returning limits")?
            .query_row([self.hive], |row| unsigned(row, 0))?;
        let slowest_ms = self
            .cached("select coalesce(max(beat_ms), 0) from hive_node where hive = ?1")?
            .query_row([self.hive], |row| unsigned(row, 0))?;
        let effective_ms = self.now_ms + if newest.is_some() { after_ms.max(2 * slowest_ms) } else { 0 };
        let definition = Definition { version, rule, effective_ms };
        match newest {
            Some(now) => {
                self.define(limit, NOW, &now)?;
                self.define(limit, NEXT, &definition)?;
            }
            None => self.define(limit, NOW, &definition)?,
        }
        Ok(Reply::Set { version, effective_ms })
    }

    pub fn limits(&self) -> Answer<Reply> {
        let mut limits = Vec::new();
        if !self.has_tables()? {
            return Ok(Reply::Limits { hive_ms: self.now_ms, version: 0, limits });
        }
        let names: Vec<Name> = self
            .cached("select name from hive_limit where hive = ?1 and limit_key = '' order by name")?
            .query_map([self.hive], |row| row.get::<_, String>(0).map(Name::from))?
            .collect::<Result<_, _>>()?;
        for name in names {
            let Some(now) = self.in_force(&name)? else { continue };
            let next = self.defined(&name, NEXT)?.filter(|next| next.effective_ms > self.now_ms);
            limits.push(Limit { name, now, next });
        }
        Ok(Reply::Limits { hive_ms: self.now_ms, version: self.head()?.limits, limits })
    }

    pub fn ledger(&self, limit: &str, max: u32) -> Answer<Reply> {
        let rows = self
            .cached(
                // The sum stops at the largest 63-bit number.
                "select limit_key, version, pool_u, pool_ms, issued_u + min(9223372036854775807 - issued_u,
                     booked_u / 1000 * max(min(?4, (slot + 1) * 1000) - pool_ms, 0)
                   + next_u / 1000 * max(min(?4, (slot + 2) * 1000) - max(pool_ms, (slot + 1) * 1000), 0)),
                   case max(?4 / 1000 - slot, 0) when 0 then booked_u when 1 then next_u else 0 end
                 from hive_limit
                 where hive = ?1 and name = ?2 and length(limit_key) = 32 order by issued_u desc, limit_key limit ?3",
            )?
            .query_map(params![self.hive, limit, max, self.now()], |row| {
                Ok(BucketRow {
                    key: key(row, 0)?,
                    version: unsigned(row, 1)?,
                    pool_u: unsigned(row, 2)?,
                    pool_ms: unsigned(row, 3)?,
                    issued_u: unsigned(row, 4)?,
                    booked_u: unsigned(row, 5)?,
                })
            })?
            .collect::<Result<_, _>>()?;
        Ok(Reply::Ledger(rows))
    }

    /// Deletes idle buckets, with the same condition as [`Bucket::is_idle`].
    pub fn sweep_buckets(&self, idle_ms: u64, rows_max: u32) -> Answer<u64> {
        let swept = self
            .cached(
                "delete from hive_limit where hive = ?1 and (name, limit_key) in (
                   select name, limit_key from hive_limit where hive = ?1 and length(limit_key) = 32 and case
                     when rate_u = 0 and effective_ms > 0 then effective_ms <= ?2
                     when rate_u = 0 then issued_u = 0
                     else ?2 - pool_ms >= ?3 and (?2 - pool_ms) / period_ms >= (burst_u - pool_u + rate_u - 1) / rate_u
                   end limit ?4)",
            )?
            .execute(params![self.hive, self.now(), signed(idle_ms), rows_max])?;
        Ok(swept as u64)
    }

    /// Deletes the rows of nodes that hold no slots. It waits `idle_ms` after the node's last request, so that no
    /// earlier request can still arrive.
    pub fn sweep_shares(&self, idle_ms: u64, rows_max: u32) -> Answer<u64> {
        let swept = self
            .cached(
                "delete from hive_share where hive = ?1 and (name, limit_key, node) in (
                   select name, limit_key, node from hive_share
                   where hive = ?1 and has_u = 0 and until_ms + ?3 <= ?2 limit ?4)",
            )?
            .execute(params![self.hive, self.now(), signed(idle_ms), rows_max])?;
        Ok(swept as u64)
    }
}

fn key(row: &Row<'_>, column: usize) -> rusqlite::Result<Key> {
    u128::from_str_radix(&row.get::<_, String>(column)?, 16)
        .map(Key)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}
