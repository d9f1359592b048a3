//! Capture: triggers in the application's database that write an outbox row for every change a document could see.
//!
//! [`triggers`] makes the texts and does nothing; [`install`] puts them in place, in one transaction, so that there is
//! never a moment without capture; [`check_drift`] finds what a migration of the application has done to them.

mod drift;
mod expression;
mod fit;
mod install;
pub mod payload;
pub(crate) mod quote;
mod replaced;
mod trigger;

pub use drift::{Drift, DriftReport, Drifted, check_drift, drift};
pub use expression::rowid_alias;
pub use fit::{Misfit, fits};
pub use install::{Changes, install, plan, reinstall, uninstall, upgrade};
pub use trigger::{Trigger, triggers};
