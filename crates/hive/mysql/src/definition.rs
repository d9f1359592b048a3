//! The definitions of limits, and the ledger of what was issued under them.

use honeyflow_event::Name;
use honeyflow_hive::contract::limit::{BucketRow, Definition, Limit, Reply, Rule};

use crate::{
    limit::{self, NEXT, NOW},
    literal::{self, signed},
    message::Message,
    outcome::{Answer, Stop},
    row,
    schema::HIVE_MS,
    session::{LEASE_LOCK_SECONDS, Session},
};

impl Session {
    /// Sets a definition under the lock of the view, so that concurrent requests run one after the other.
    pub async fn set_limit(&mut self, limit: &Name, was: Option<u64>, rule: Rule, after_ms: u64) -> Answer<Reply> {
        let hive = self.hive.clone();
        let mut message = self.begin(LEASE_LOCK_SECONDS);
        let view = self.lock_view(&mut message);
        let definitions = self.add_definitions(&mut message, [limit]);
        let slowest = message.add(format!("select coalesce(max(beat_ms), 0) from hive_node where hive = {hive}"));
        let heard = self.ask(message).await?;
        let present = heard.defined(definitions)?.remove(limit).unwrap_or_default();
        let newest = present.next.or(present.now);
        if newest.map(|newest| newest.version) != was {
            return Ok(Reply::Raced);
        }
        if let Some(next) = newest.filter(|newest| newest.effective_ms > heard.now_ms) {
            return Ok(Reply::Pending { effective_ms: next.effective_ms });
        }
        let head = heard.head(view)?;
        if head.origin.is_none() {
            return Err(Stop::NoView);
        }
        let slowest_ms = heard.first(slowest).map_or(Ok(0), |row| row::unsigned(row, 0))?;
        let version = head.limits + 1;
        let effective_ms = heard.now_ms + if newest.is_some() { after_ms.max(2 * slowest_ms) } else { 0 };
        let definition = Definition { version, rule, effective_ms };
        let mut message = Message::default();
        message.add(format!("update hive_view set limits = {version} where hive = {hive}"));
        match newest {
            Some(now) => {
                message.add(self.defining(limit, NOW, &now));
                message.add(self.defining(limit, NEXT, &definition));
            }
            None => drop(message.add(self.defining(limit, NOW, &definition))),
        }
        self.commit(message).await?;
        Ok(Reply::Set { version, effective_ms })
    }

    fn defining(&self, limit: &str, key: &str, definition: &Definition) -> String {
        let Definition { version, rule: Rule { rate_u, period_ms, burst_u }, effective_ms } = *definition;
        let [version, rate_u, period_ms, burst_u, effective_ms] =
            [version, rate_u, period_ms, burst_u, effective_ms].map(signed);
        let (hive, name) = (&self.hive, literal::text(limit));
        format!(
            "insert into hive_limit(hive, name, limit_key, version, rate_u, period_ms, burst_u, effective_ms)
             values ({hive}, {name}, '{key}', {version}, {rate_u}, {period_ms}, {burst_u}, {effective_ms})
             on duplicate key update version = {version}, rate_u = {rate_u}, period_ms = {period_ms},
               burst_u = {burst_u}, effective_ms = {effective_ms}"
        )
    }

    pub async fn limits(&mut self) -> Answer<Reply> {
        let mut message = self.snapshot();
        let view = self.add_view(&mut message);
        let definitions = self.add_all_definitions(&mut message);
        let heard = self.read(message).await?;
        let mut limits = Vec::new();
        for (name, defined) in heard.defined(definitions)? {
            let Some(now) = defined.in_force(heard.now_ms) else { continue };
            let next = defined.next.filter(|next| next.effective_ms > heard.now_ms);
            limits.push(Limit { name, now, next });
        }
        Ok(Reply::Limits { hive_ms: heard.now_ms, version: heard.head(view)?.limits, limits })
    }

    pub async fn ledger(&mut self, limit: &str, max: u32) -> Answer<Reply> {
        let mut message = self.snapshot();
        let rows = message.add(format!(
            "select limit_key, version, pool_u, pool_ms, issued_u
               + booked_u div 1000 * greatest(least({HIVE_MS}, (slot + 1) * 1000) - pool_ms, 0)
               + next_u div 1000 * greatest(least({HIVE_MS}, (slot + 2) * 1000) - greatest(pool_ms, (slot + 1) * 1000), 0),
               case greatest({HIVE_MS} div 1000 - slot, 0) when 0 then booked_u when 1 then next_u else 0 end
             from hive_limit
             where hive = {} and name = {} and length(limit_key) = 32 order by issued_u desc, limit_key limit {max}",
            self.hive,
            literal::text(limit)
        ));
        let heard = self.read(message).await?;
        let mut ledger = Vec::new();
        for row in heard.rows(rows) {
            ledger.push(BucketRow {
                key: limit::key(row, 0)?,
                version: row::unsigned(row, 1)?,
                pool_u: row::unsigned(row, 2)?,
                pool_ms: row::unsigned(row, 3)?,
                issued_u: row::unsigned(row, 4)?,
                booked_u: row::unsigned(row, 5)?,
            });
        }
        Ok(Reply::Ledger(ledger))
    }
}
