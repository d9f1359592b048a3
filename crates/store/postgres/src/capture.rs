//! Capture: triggers in the application's database that write an outbox row for every change that may affect a
//! document.
//!
//! [`trigger`] generates their texts and has no effect; [`install`] installs them table by table; [`drift`] finds how a
//! migration of the application has changed them. All three work on what [`found`] reads with one query.

mod drift;
mod fit;
mod found;
mod install;
mod trigger;

use honeyflow_runtime::Failure;
use honeyflow_store::{
    CaptureTable,
    capture::{Changes, DriftReport, Misfit},
};

pub(crate) use install::TRIGGERS_OF_OURS;

use found::{CaptureState, Notes};
use install::Work;

use crate::{ADMIN_TIMEOUT, PostgresStore, codes, collision, driver::Error, outcome, session::with_timeout};

impl PostgresStore {
    /// Makes the installed triggers equal to the wanted ones; a second call changes nothing. The tables of Honeyflow
    /// must exist. It refuses everything if a table cannot be captured.
    pub async fn install_capture(&self, wanted: &[CaptureTable]) -> Result<Changes, Failure> {
        self.put_capture(wanted, true).await
    }

    /// Reinstalls triggers after a migration of the application: it installs the triggers that fit and reports the
    /// misfits, instead of refusing everything.
    pub async fn reinstall_capture(&self, wanted: &[CaptureTable]) -> Result<Changes, Failure> {
        self.put_capture(wanted, false).await
    }

    /// Compares the installed triggers with the wanted ones, with one query.
    pub async fn capture_drift(&self, wanted: &[CaptureTable]) -> Result<DriftReport, Failure> {
        let found = self.find_captured(wanted, Notes::Read).await?;
        Ok(drift::report(wanted, &found))
    }

    /// Returns the statements of an installation, for `--print`.
    pub async fn capture_plan(&self, wanted: &[CaptureTable]) -> Result<String, Failure> {
        let found = self.find_captured(wanted, Notes::Leave).await?;
        let mut text = String::new();
        for capture in wanted {
            let table = fit::fits(capture, &found).map_err(first)?;
            let texts = trigger::texts(capture, table, &found.schema);
            text.push_str(&format!("{};\n", texts.function.sql));
            text.extend(texts.triggers.iter().map(|trigger| format!("{};\n", trigger.sql)));
            text.push('\n');
        }
        Ok(text)
    }

    async fn put_capture(&self, wanted: &[CaptureTable], strict: bool) -> Result<Changes, Failure> {
        let found = self.find_captured(wanted, Notes::Read).await?;
        let mut changes = Changes::default();
        let mut fitting = Vec::new();
        for capture in wanted {
            match fit::fits(capture, &found) {
                Ok(_) => fitting.push(capture),
                Err(misfits) if strict => return Err(first(misfits)),
                Err(misfits) => changes.misfits.extend(misfits),
            }
        }
        // First the superfluous ones: those of a renamed table still use the function of its old name.
        let drops = found.spare.iter().map(Work::Drop);
        for work in drops.chain(fitting.into_iter().map(Work::Put)).chain([Work::Forget(wanted)]) {
            install::add(&mut changes, self.change_capture(&work).await?);
        }
        Ok(changes)
    }

    async fn find_captured(&self, wanted: &[CaptureTable], notes: Notes) -> Result<CaptureState, Failure> {
        let failed = |error: Error| outcome::failure(&error, "look for changed triggers");
        let names: Vec<&str> = wanted.iter().map(|capture| capture.table.as_str()).collect();
        let mut reader = self.lanes.readers.take().await?.map_err(failed)?;
        let read = found::read(&mut reader.connection, &names, notes);
        let result = with_timeout(self.lanes.options.timeout, read).await;
        self.lanes.readers.give_back(reader, &result).await;
        result.map_err(failed)
    }

    /// Runs one transaction, and again if it collides with the application's.
    async fn change_capture(&self, work: &Work<'_>) -> Result<Changes, Failure> {
        let failed = |error: &Error| outcome::failure(error, work);
        let mut tries = collision::tries();
        loop {
            let mut reader = self.lanes.readers.take().await?.map_err(|error| failed(&error))?;
            let result = with_timeout(ADMIN_TIMEOUT, install::transact(&mut reader.connection, work)).await;
            self.lanes.readers.give_back(reader, &result).await;
            match result {
                Ok(changes) => return Ok(changes),
                Err(error) if outcome::is_collision(&error) && tries.wait().await => {}
                Err(error) => return Err(failed(&error)),
            }
        }
    }
}

fn first(misfits: Vec<Misfit>) -> Failure {
    let none = || Failure::reject(codes::STORE_ERROR, "capture: the table does not fit");
    misfits.into_iter().next().map_or_else(none, Failure::from)
}
