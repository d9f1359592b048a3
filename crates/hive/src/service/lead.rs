//! Runs a duty of the program: work that runs only on the node that holds its lease.
//!
//! | event                                | consequence                                                               |
//! |--------------------------------------|---------------------------------------------------------------------------|
//! | the lease is not held here           | wait                                                                      |
//! | lease gained                         | the work starts under the term                                            |
//! | lease lost                           | the work is dropped at its next await; wait again                         |
//! | a new epoch was minted               | the work is dropped and starts again under the new term                   |
//! | another node should hold the lease   | the work is dropped, then reported as ended                               |
//! | the work fails and may be retried    | retried with back-off for 10 s, then released; not taken for 30 s, or as long as the failure asks |
//! | the work fails for good, or ends     | the lease is released, and the result returned                            |
//! | lease lost, but the work never awaits | half a second after its trust ended, the program is informed ([`super::Options::on_unstopped`]); the lease is released if this node gets it again, and not wanted until the work has stopped |

use std::{sync::Arc, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::{Backoff, Class, Failure, Moment};

use super::{
    Hive,
    mailbox::{Change, Mailbox},
};
use crate::{codes, contract::HeldLease, member::Input, term::Term};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
const TRY_FOR: Duration = Duration::from_secs(10);
const SIT_OUT: Duration = Duration::from_secs(30);

/// Why the work under a term has ended.
enum Outcome<T> {
    Done(Result<T, Failure>),
    NewTerm(Term),
    Lost,
    GivenUp,
    Left(HeldLease),
    Over,
}

impl Hive {
    /// Runs `work` on the node that holds the lease `duty/<name>`, until it ends once. Each write of the work must show
    /// [`Term::fence`].
    ///
    /// ```no_run
    /// # async fn example(hive: &honeyflow_hive::Hive) -> Result<(), honeyflow_runtime::Failure> {
    /// hive.lead("duty/report", async |term| {
    ///     println!("written under {:?}", term.fence());
    ///     Ok(())
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// The failure of `work`, if it cannot be retried; or `not-a-member` once this node is no member any more.
    pub async fn lead<T, W>(&self, lease: &str, work: impl Fn(Term) -> W) -> Result<T, Failure>
    where
        W: Future<Output = Result<T, Failure>>,
    {
        let lease: Name = lease.into();
        if !lease.starts_with("duty/") {
            let message = format!("lease {lease:?} cannot be led: its name must be duty/<name>");
            return Err(Failure::fatal(codes::NOT_A_DUTY, message));
        }
        let Some(mailbox) = self.shared.open_mailbox(&lease) else {
            return Err(Failure::fatal(codes::LED_TWICE, format!("this process already leads {lease}")));
        };
        let candidacy = Candidacy { hive: self, lease: &lease };
        self.send(Input::Want(lease.clone())).await;
        let mut granted = None;
        loop {
            let term = match granted.take() {
                Some(term) => term,
                None => wait_for_term(&mailbox).await.ok_or_else(not_a_member)?,
            };
            match self.work_under(term, &mailbox, &work).await {
                Outcome::Done(result) => {
                    drop(candidacy);
                    return result;
                }
                Outcome::NewTerm(term) => granted = Some(term),
                Outcome::Left(held) => self.send(Input::Left(held)).await,
                // If the work stopped too late, the lease is no longer wanted: want it again.
                Outcome::Lost => self.send(Input::Want(lease.clone())).await,
                Outcome::GivenUp => {}
                Outcome::Over => return Err(not_a_member()),
            }
        }
    }

    async fn work_under<T, W>(&self, term: Term, mailbox: &Mailbox, work: &impl Fn(Term) -> W) -> Outcome<T>
    where
        W: Future<Output = Result<T, Failure>>,
    {
        let mut streak = FailureStreak::default();
        loop {
            let began_at = self.shared.clock().now();
            let ended = tokio::select! {
                biased;
                ended = wait_for_interruption(mailbox) => return ended,
                result = work(term.clone()) => result,
            };
            let failure = match ended {
                Err(failure) if matches!(failure.class, Class::Retry | Class::RetryAfter) => failure,
                done => return Outcome::Done(done),
            };
            tracing::warn!(lease = %term.lease(), %failure, "duty failed: it is retried, or left to another node");
            // It keeps failing here: another node may have more success.
            let Some(wait) = streak.next_wait(began_at, self.shared.clock().now(), failure.after) else {
                let wait = SIT_OUT.max(failure.after.unwrap_or_default());
                self.send(Input::SitOut { lease: term.lease().clone(), wait }).await;
                return Outcome::GivenUp;
            };
            tokio::select! {
                biased;
                ended = wait_for_interruption(mailbox) => return ended,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

/// A series of failures, with less than [`TRY_FOR`] of work between two of them.
#[derive(Default)]
struct FailureStreak {
    since: Option<Moment>,
    times: u32,
}

impl FailureStreak {
    /// Records a failure and returns how long to wait before the next try. `None` if there should be none: the time is
    /// over, or the failure asks for a longer pause (`asked`) than the remaining time, so another node should try.
    fn next_wait(&mut self, began_at: Moment, now: Moment, asked: Option<Duration>) -> Option<Duration> {
        if now.since(began_at) >= TRY_FOR {
            *self = FailureStreak::default();
        }
        let since = *self.since.get_or_insert(now);
        let wait = BACKOFF.ceiling(self.times);
        self.times += 1;
        let left = TRY_FOR.saturating_sub(now.since(since));
        (!left.is_zero() && asked.is_none_or(|asked| asked <= left)).then_some(asked.unwrap_or(wait))
    }
}

/// Withdraws this node as a candidate when it is dropped, however [`Hive::lead`] ends.
struct Candidacy<'h> {
    hive: &'h Hive,
    lease: &'h Name,
}

impl Drop for Candidacy<'_> {
    fn drop(&mut self) {
        self.hive.shared.close_mailbox(self.lease, Input::Unwant(self.lease.clone()));
    }
}

async fn wait_for_term(mailbox: &Arc<Mailbox>) -> Option<Term> {
    loop {
        if let Change::Gained(term) = mailbox.next().await? {
            return Some(term);
        }
    }
}

async fn wait_for_interruption<T>(mailbox: &Mailbox) -> Outcome<T> {
    match mailbox.next().await {
        Some(Change::Gained(term)) => Outcome::NewTerm(term),
        Some(Change::Leave { held, .. }) => Outcome::Left(held),
        Some(Change::Lost { .. }) => Outcome::Lost,
        None => Outcome::Over,
    }
}

fn not_a_member() -> Failure {
    Failure::retry(codes::NOT_A_MEMBER, "this node has left the hive, or was refused by it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_millis(seconds * 1000)
    }

    #[test]
    fn hv_47_ten_seconds_count_from_the_first_failure() {
        let mut streak = FailureStreak::default();
        let first = streak.next_wait(at(0), at(3_600), None);
        assert_eq!(first, Some(BACKOFF.ceiling(0)), "it ran for an hour before it failed");
        assert!(streak.next_wait(at(3_600), at(3_605), None).is_some_and(|wait| wait > BACKOFF.ceiling(0)));
        assert_eq!(streak.next_wait(at(3_609), at(3_610), None), None);
    }

    #[test]
    fn hv_47_ten_seconds_of_work_start_a_new_series_of_tries() {
        let mut streak = FailureStreak::default();
        streak.next_wait(at(0), at(1), None);
        assert_eq!(streak.next_wait(at(2), at(12), None), Some(BACKOFF.ceiling(0)));
        assert!(streak.next_wait(at(12), at(21), None).is_some());
        assert_eq!(streak.next_wait(at(21), at(22), None), None);
    }

    /// The node does not keep the lease during a pause that is longer than the time for tries.
    #[test]
    fn hv_47_a_long_pause_is_not_waited_out_under_the_lease() {
        let seconds = Duration::from_secs;
        assert_eq!(FailureStreak::default().next_wait(at(0), at(1), Some(seconds(3))), Some(seconds(3)));
        assert_eq!(FailureStreak::default().next_wait(at(0), at(1), Some(seconds(60))), None);
        let mut streak = FailureStreak::default();
        streak.next_wait(at(0), at(1), None);
        assert_eq!(streak.next_wait(at(1), at(9), Some(seconds(3))), None, "two seconds are left");
    }
}
