//! Parks a row that the node cannot read, inside the database. It copies a large payload in pieces, because a statement
//! that copies a value holds all of it in memory, more than once.

use std::io::{Read, Write};

use honeyflow_event::EventId;
use honeyflow_runtime::Failure;
use rusqlite::{Connection, OptionalExtension, blob::ZeroBlob, params};

use crate::write::class_name;

/// The size of a piece in memory; the statement itself copies a payload of at most this size.
const PIECE_BYTES: u32 = 1 << 20;

/// Parks one row. If the row no longer exists, it is already parked and this does nothing.
pub(crate) fn park_row(
    connection: &Connection,
    event: EventId,
    failure: &Failure,
    now_ms: i64,
) -> rusqlite::Result<()> {
    let parked: Option<(i64, Option<u32>)> = connection
        .prepare_cached(
            "insert or replace into honeyflow_parked(tenant, entity, entity_key, workflow, event, format, kind, priority,
               attempts, class, code, message, parked_at, change, columns, payload)
             select tenant, entity, entity_key, ifnull(workflow, ''), id, format, kind, priority, 0, ?2, ?3, ?4, ?5, change,
               columns, case when octet_length(payload) <= ?6 then payload end
             from honeyflow_outbox where id = ?1
             returning id, (select octet_length(payload) from honeyflow_outbox where id = ?1)",
        )?
        .query_row(
            params![event, class_name(failure.class), failure.code, failure.message, now_ms, PIECE_BYTES],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    if let Some((id, Some(bytes))) = parked
        && bytes > PIECE_BYTES
    {
        copy_payload(connection, event, id, bytes)?;
    }
    connection.prepare_cached("delete from honeyflow_outbox where id = ?1")?.execute([event])?;
    Ok(())
}

fn copy_payload(connection: &Connection, event: EventId, parked: i64, bytes: u32) -> rusqlite::Result<()> {
    connection
        .prepare_cached("update honeyflow_parked set payload = ?2 where id = ?1")?
        .execute(params![parked, ZeroBlob(bytes.into())])?;
    let mut from = connection.blob_open("main", "honeyflow_outbox", "payload", event, true)?;
    let mut to = connection.blob_open("main", "honeyflow_parked", "payload", parked, false)?;
    let mut piece = vec![0; PIECE_BYTES as usize];
    loop {
        let read = from.read(&mut piece).map_err(broken)?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&piece[..read]).map_err(broken)?;
    }
}

fn broken(error: std::io::Error) -> rusqlite::Error {
    error.downcast::<rusqlite::Error>().unwrap_or(rusqlite::Error::BlobSizeError)
}
