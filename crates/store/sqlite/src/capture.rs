//! Capture: triggers in the application's database that write an outbox row for every change that may affect a
//! document.
//!
//! [`triggers`] generates their texts and has no effect; [`install`] installs them in one transaction, so that there is
//! never a moment without capture; [`check_drift`] finds how a migration of the application has changed them.

mod drift;
mod expression;
mod fit;
mod install;
pub mod payload;
pub(crate) mod quote;
mod replaced;
mod trigger;

pub use drift::{check_drift, drift, note_complete};
pub use expression::rowid_alias;
pub use fit::fits;
pub use honeyflow_store::capture::{Changes, Drift, DriftKind, DriftReport, Misfit};
pub use install::{install, plan, refuse_other_encodings, reinstall, uninstall, upgrade};
pub use trigger::{Trigger, triggers};
