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

pub use drift::{Drift, DriftKind, DriftReport, check_drift, drift};
pub use expression::rowid_alias;
pub use fit::{Misfit, fits};
pub use install::{Changes, install, plan, reinstall, uninstall, upgrade};
pub use trigger::{Trigger, triggers};
