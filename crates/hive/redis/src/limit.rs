//! Limits: buckets and slots. The scripts do the same arithmetic as [`honeyflow_hive::bucket`].

use honeyflow_event::Name;
use honeyflow_hive::contract::limit::{
    BucketRow, Definition, Denial, DeniedTake, Draw, DrawOutcome, ExactTake, Key, Limit, MICRO, Remainder, Reply,
    Request, Rule, Slots, SlotsHeld, UndefinedLimit, Window,
};
use honeyflow_runtime::Failure;
use redis::Value;

use crate::{
    answer::{Store, flag},
    codes,
    decode::{Decoded, Fields, unreadable},
    script::{Script, scripts},
};

/// Numbers in scripts are doubles; integers are exact up to here.
const WHOLE_MAX: u64 = 1 << 53;

impl Store {
    pub async fn limit(&self, request: Request) -> Result<Reply, Failure> {
        let scripts = scripts();
        match request {
            Request::Draw(draws) => self.draw(&draws).await,
            Request::Exact { takes, peek } => self.exact(&takes, peek).await,
            Request::Refund(takes) => {
                let arguments = takes.iter().flat_map(|ExactTake { limit, key, cost, window }| {
                    let until = window.map(|window| window.end_ms.to_string()).unwrap_or_default();
                    [limit.to_string(), key.to_string(), cost.to_string(), until]
                });
                let keys = self.buckets(takes.iter().map(|take| (&take.limit, take.key)));
                self.ask(&scripts.refund, &keys, arguments).await.map(|_| Reply::Done)
            }
            Request::Slots { node, asks } => {
                let wanted = asks.iter().flat_map(|Slots { limit, key, seq, wants }| {
                    [limit.to_string(), key.to_string(), seq.to_string(), wants.to_string()]
                });
                let arguments: Vec<String> = [String::new(), node.to_string()].into_iter().chain(wanted).collect();
                let keys = self.buckets(asks.iter().map(|ask| (&ask.limit, ask.key)));
                let held = self.limits.run(&scripts.slots, &[&self.keys.hive, &keys], &arguments).await?;
                match held {
                    Value::Array(_) => Fields::from_value(held)?.each(slots).map(Reply::Slots),
                    _ => Ok(Reply::Unfit),
                }
            }
            Request::Set { limit, was, rule, after_ms } => self.set_limit(&limit, was, rule, after_ms).await,
            Request::Limits => limits(self.ask(&scripts.limits, &[], []).await?),
            Request::Ledger { limit, max } => {
                let keys = [self.keys.ledger(&limit)];
                let found = self.ask(&scripts.ledger, &keys, [limit.to_string(), max.to_string()]).await?;
                ledger(found)
            }
        }
    }

    async fn ask(
        &self,
        script: &Script,
        keys: &[String],
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Value, Failure> {
        let arguments: Vec<String> = arguments.into_iter().collect();
        self.limits.run(script, &[&self.keys.limit, keys], &arguments).await
    }

    /// The keys of bucket and ledger, for each named bucket.
    fn buckets<'a>(&self, named: impl Iterator<Item = (&'a Name, Key)>) -> Vec<String> {
        named.flat_map(|(limit, key)| [self.keys.bucket(limit, key), self.keys.ledger(limit)]).collect()
    }

    async fn draw(&self, draws: &[Draw]) -> Result<Reply, Failure> {
        let arguments = draws.iter().flat_map(|Draw { limit, key, want, need, reserve: book }| {
            let (to_book, weight) = book.map_or((0, 0), |book| (book.want.min(WHOLE_MAX / MICRO), book.weight.max(1)));
            let numbers = [*want, *need, to_book, weight].map(|number| number.to_string());
            [limit.to_string(), key.to_string()].into_iter().chain(numbers)
        });
        let keys = self.buckets(draws.iter().map(|draw| (&draw.limit, draw.key)));
        let mut fields = Fields::from_value(self.ask(&scripts().draw, &keys, arguments).await?)?;
        let hive_ms = fields.number()?;
        let drawn = fields.fields()?.each(|fields| {
            let Some(mut drawn) = fields.optional_fields()? else { return Ok(Err(UndefinedLimit)) };
            Ok(Ok(DrawOutcome {
                granted: drawn.number()?,
                pool_u: drawn.number()?,
                version: drawn.number()?,
                retry_ms: drawn.optional_number()?,
                reserved: drawn.number()?,
                begins_ms: drawn.number()?,
            }))
        })?;
        Ok(Reply::Drawn { hive_ms, drawn })
    }

    async fn exact(&self, takes: &[ExactTake], peek: bool) -> Result<Reply, Failure> {
        let taken = takes.iter().flat_map(|ExactTake { limit, key, cost, window }| {
            let instant = |of: fn(&Window) -> u64| window.as_ref().map(|window| of(window).to_string());
            let (start, end) = (instant(|window| window.start_ms), instant(|window| window.end_ms));
            let (start, end) = (start.unwrap_or_default(), end.unwrap_or_default());
            [limit.to_string(), key.to_string(), cost.to_string(), start, end]
        });
        let keys = self.buckets(takes.iter().map(|take| (&take.limit, take.key)));
        let arguments = [flag(peek)].into_iter().chain(taken);
        let mut fields = Fields::from_value(self.ask(&scripts().exact, &keys, arguments).await?)?;
        if fields.text()? == "denied" {
            return denied(fields).map(Reply::Denied);
        }
        let hive_ms = fields.number()?;
        let left = fields.fields()?.each(|fields| {
            let mut left = fields.fields()?;
            Ok(Remainder { pool_u: left.number()?, version: left.number()?, full_ms: left.number()? })
        })?;
        Ok(Reply::Admitted { hive_ms, left })
    }

    async fn set_limit(&self, limit: &Name, was: Option<u64>, rule: Rule, after_ms: u64) -> Result<Reply, Failure> {
        if [rule.rate_u, rule.period_ms, rule.burst_u].iter().any(|number| *number > WHOLE_MAX) {
            let most = WHOLE_MAX / MICRO;
            let said = format!(
                "limit {limit}: Redis counts up to {most} permits at once; set a lower limit, or use another store"
            );
            return Err(Failure::reject(codes::LIMIT_TOO_LARGE, said));
        }
        let was = was.map(|was| was.to_string()).unwrap_or_default();
        let rule = format!("{} {} {}", rule.rate_u, rule.period_ms, rule.burst_u);
        let arguments = [limit.to_string(), was, rule, after_ms.to_string()];
        let mut fields = Fields::from_value(self.run(&scripts().set_limit, arguments).await?)?;
        Ok(match &*fields.text()? {
            "set" => Reply::Set { version: fields.number()?, effective_ms: fields.number()? },
            "pending" => Reply::Pending { effective_ms: fields.number()? },
            _ => Reply::Raced,
        })
    }
}

fn denied(mut fields: Fields) -> Decoded<DeniedTake> {
    let at = usize::try_from(fields.number()?).unwrap_or(usize::MAX);
    let version = fields.number()?;
    let why = match &*fields.text()? {
        "undefined" => Denial::Undefined,
        "too-large" => Denial::TooLarge,
        "other-window" => Denial::OtherWindow { hive_ms: fields.number()? },
        _ => Denial::Empty { pool_u: fields.number()?, retry_ms: fields.number()? },
    };
    Ok(DeniedTake { at, version, why })
}

fn slots(fields: &mut Fields) -> Decoded<Result<SlotsHeld, UndefinedLimit>> {
    let Some(mut held) = fields.optional_fields()? else { return Ok(Err(UndefinedLimit)) };
    Ok(Ok(SlotsHeld {
        has: held.number()?,
        free: held.number()?,
        over: held.number()?,
        max: held.number()?,
        version: held.number()?,
    }))
}

fn limits(value: Value) -> Result<Reply, Failure> {
    let mut fields = Fields::from_value(value)?;
    let (hive_ms, version) = (fields.number()?, fields.number()?);
    let (defined, coming) = (fields.fields()?.map()?, fields.fields()?.map()?);
    let mut limits = Vec::with_capacity(defined.len());
    for (name, text) in defined {
        let now = definition(&text)?;
        let next = coming.get(&name).map(|text| definition(text)).transpose()?;
        limits.push(Limit {
            now: Definition::in_force(now, next, hive_ms),
            next: next.filter(|next| next.effective_ms > hive_ms),
            name: name.into(),
        });
    }
    limits.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(Reply::Limits { hive_ms, version, limits })
}

/// Reads a definition from the text `version rate_u period_ms burst_u effective_ms`.
fn definition(text: &str) -> Decoded<Definition> {
    let numbers: Option<Vec<u64>> = text.split(' ').map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[version, rate_u, period_ms, burst_u, effective_ms]) => {
            Ok(Definition { version, rule: Rule { rate_u, period_ms, burst_u }, effective_ms })
        }
        _ => Err(unreadable(&Value::SimpleString(text.to_owned()))),
    }
}

fn ledger(value: Value) -> Result<Reply, Failure> {
    let mut rows = Fields::from_value(value)?.each(|fields| {
        let mut row = fields.fields()?;
        let (key, mut bucket, flowed_u, booked_u) = (row.text()?, row.fields()?, row.number()?, row.number()?);
        let key = u128::from_str_radix(&key, 16).map_err(|_| unreadable(&Value::SimpleString(key)))?;
        Ok(BucketRow {
            key: Key(key),
            version: bucket.number()?,
            pool_u: bucket.number()?,
            pool_ms: bucket.number()?,
            issued_u: bucket.number()?.saturating_add(flowed_u),
            booked_u,
        })
    })?;
    rows.sort_by_key(|row| (std::cmp::Reverse(row.issued_u), row.key));
    Ok(Reply::Ledger(rows))
}
