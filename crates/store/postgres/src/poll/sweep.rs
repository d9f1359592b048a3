//! Sweeps: reads below the positions to find rows that were committed late. It first reads the ids, which are many and
//! nearly all known, then the rows of the unknown ids.

use futures_util::StreamExt;
use honeyflow_event::{EventId, PRIORITY_LEVELS};
use honeyflow_store::{Names, Poll, poll::Sweep};

use super::{PollOutcome, assemble::BYTES_MAX, statements};
use crate::{
    driver::{Either, Error, PgConnection},
    literal, row, session,
};

pub(crate) async fn sweep(
    connection: &mut PgConnection,
    polls: &[&Poll],
    names: &mut Names,
) -> Result<Vec<PollOutcome>, Error> {
    let answers = session::run(connection, ids_text(polls)).await?;
    let mut gathered: Vec<PollOutcome> = polls.iter().map(|_| PollOutcome::default()).collect();
    let mut found: Vec<Vec<EventId>> = vec![Vec::new(); polls.len()];
    let mut store_ms = 0;
    for row in answers.iter().skip(2).flatten() {
        match row::optional::<usize>(row, 0)? {
            None => store_ms = row::number(row, 1)?,
            Some(n) => found[n].push(row::number(row, 1)?),
        }
    }
    for (gathered, (poll, ids)) in gathered.iter_mut().zip(polls.iter().zip(&mut found)) {
        gathered.polled.store_ms = store_ms;
        keep_unknown(poll, ids);
    }
    let Some(rows) = rows_text(polls, &found) else { return Ok(gathered) };
    let mut bytes = 0;
    let mut statement = 0;
    let mut items = std::pin::pin!(session::send(connection, rows));
    while let Some(item) = items.next().await {
        match item? {
            Either::Left(_) => statement += 1,
            Either::Right(row) if statement == 2 && bytes < BYTES_MAX => {
                let n: usize = row::number(&row, 0)?;
                if let Some(event) = row::read(&row, 1, names).map(|found| gathered[n].take(found))? {
                    bytes += event.payload.as_ref().map_or(0, |payload| payload.len());
                    gathered[n].polled.events.push(event);
                }
            }
            // Settings, or a row beyond `BYTES_MAX` that the next sweep finds.
            Either::Right(_) => {}
        }
    }
    for gathered in &mut gathered {
        gathered.polled.events.sort_by_key(|event| (event.priority, event.id));
    }
    Ok(gathered)
}

/// Keeps the lowest unknown ids, at most as many as the poll has room for.
fn keep_unknown(poll: &Poll, ids: &mut Vec<EventId>) {
    let Some(Sweep { known, room, .. }) = &poll.sweep else { return };
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|id| known.binary_search(id).is_err());
    ids.truncate(*room as usize);
}

/// Reads `room` plus the number of known rows per level, so that known rows cannot hide an unknown one.
fn ids_text(polls: &[&Poll]) -> String {
    let clock = "select null::int, (extract(epoch from statement_timestamp()) * 1000)::bigint";
    let mut statements = format!("{};\n{clock}", statements::BEGIN);
    for (passed_over, group) in statements::groups(polls) {
        let sweeps: Vec<(usize, &Sweep)> =
            group.iter().filter_map(|n| Some((*n, polls[*n].sweep.as_ref()?))).filter(|(_, s)| s.room > 0).collect();
        let limit = |sweep: &Sweep| (sweep.room as usize).saturating_add(sweep.known.len());
        let wanted = format!(
            "unnest({}::int[], {}::smallint[], {}::bigint[], {}::bigint[], {}::bigint[]) as w(n, shard, low, high, room)",
            literal::integers(sweeps.iter().map(|(n, _)| n)),
            literal::integers(sweeps.iter().map(|(n, _)| polls[*n].shard)),
            literal::integers(sweeps.iter().map(|(_, sweep)| sweep.from)),
            literal::integers(sweeps.iter().map(|(_, sweep)| sweep.to)),
            literal::integers(sweeps.iter().map(|(_, sweep)| limit(sweep))),
        );
        let not_passed = statements::not_passed(passed_over);
        let last = PRIORITY_LEVELS - 1;
        statements.push_str(&format!(
            ";\nselect w.n, r.id from {wanted}, generate_series(0, {last}) as p(priority),
             lateral (select o.id from honeyflow_outbox o where o.shard = w.shard and o.priority = p.priority
               and o.id between w.low and w.high and o.ready_at is null{not_passed} order by o.id limit w.room) r
             ;\nselect w.n, r.id from {wanted},
             lateral (select o.id from honeyflow_outbox o where o.shard = w.shard and o.ready_at is not null
               and o.ready_at <= statement_timestamp() and o.id between w.low and w.high{not_passed}
               order by o.id limit w.room) r
             where (select exists (select 1 from honeyflow_outbox where ready_at is not null))"
        ));
    }
    statements.push_str(";\ncommit");
    statements
}

fn rows_text(polls: &[&Poll], found: &[Vec<EventId>]) -> Option<String> {
    let wanted = || found.iter().enumerate().flat_map(|(n, ids)| ids.iter().map(move |id| (n, *id)));
    wanted().next()?;
    Some(format!(
        "{};\nselect w.n, {} from unnest({}::int[], {}::bigint[], {}::bigint[]) as w(n, id, max)
         join honeyflow_outbox o on o.id = w.id order by o.id;\ncommit",
        statements::BEGIN,
        row::columns("w.max"),
        literal::integers(wanted().map(|(n, _)| n)),
        literal::integers(wanted().map(|(_, id)| id)),
        literal::integers(wanted().map(|(n, _)| statements::payload_max(polls[n]))),
    ))
}
