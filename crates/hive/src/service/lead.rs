//! A singleton of one's own: runs where its lease is held, and nowhere else.
//!
//! | while                        | then                                                                      |
//! |------------------------------|---------------------------------------------------------------------------|
//! | the lease is not ours        | wait                                                                      |
//! | gained                       | the work begins, under the term                                            |
//! | lost                         | the work is dropped where it waits; wait again                             |
//! | minted anew                  | dropped, and begun under the new term                                      |
//! | another node should have it  | dropped, then said to have been left                                       |
//! | it fails and may be tried again | tried again with back-off for 10 s, then released; not taken for 30 s, or as long as it asks |
//! | it fails for good, or ends   | released; that is the answer                                               |
//! | lost, and it never waits     | half a second past its trust the program is told ([`super::Options::on_unstopped`]); the lease is released, should it be ours again, and not wanted until the work has stopped |

use std::{sync::Arc, time::Duration};

use honeyflow_event::Name;
use honeyflow_runtime::{Backoff, Class, Failure, Moment};

use super::{
    Hive,
    mailbox::{Change, Mailbox},
};
use crate::{contract::Held, member::Input, term::Term};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
const TRY_FOR: Duration = Duration::from_secs(10);
const SIT_OUT: Duration = Duration::from_secs(30);

/// What ends the work under a term.
enum Ended<T> {
    Done(Result<T, Failure>),
    Again(Term),
    Lost,
    GivenUp,
    Left(Held),
    Over,
}

impl Hive {
    /// Runs `work` under the lease `duty/<name>` wherever it is held, until it ends once. Whatever it writes shows
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
    /// What `work` answers, if it is not worth another try; or that this node is no member any more.
    pub async fn lead<T, W>(&self, lease: &str, work: impl Fn(Term) -> W) -> Result<T, Failure>
    where
        W: Future<Output = Result<T, Failure>>,
    {
        let lease: Name = lease.into();
        if !lease.starts_with("duty/") {
            let said = format!("lease {lease:?} is none that can be led: call it duty/<name>");
            return Err(Failure::fatal("not-a-duty", said));
        }
        let Some(mailbox) = self.shared.open_mailbox(&lease) else {
            return Err(Failure::fatal("led-twice", format!("{lease} is led in this process already")));
        };
        let candidacy = Candidacy { hive: self, lease: &lease };
        self.tell(Input::Want(lease.clone())).await;
        let mut granted = None;
        loop {
            let term = match granted.take() {
                Some(term) => term,
                None => gain(&mailbox).await.ok_or_else(over)?,
            };
            match self.under(term, &mailbox, &work).await {
                Ended::Done(result) => {
                    drop(candidacy);
                    return result;
                }
                Ended::Again(term) => granted = Some(term),
                Ended::Left(held) => self.tell(Input::Left(held)).await,
                // Should it have come late, the lease is not wanted any more.
                Ended::Lost => self.tell(Input::Want(lease.clone())).await,
                Ended::GivenUp => {}
                Ended::Over => return Err(over()),
            }
        }
    }

    async fn under<T, W>(&self, term: Term, mailbox: &Mailbox, work: &impl Fn(Term) -> W) -> Ended<T>
    where
        W: Future<Output = Result<T, Failure>>,
    {
        let mut tried = Tried::default();
        loop {
            let began_at = self.shared.clock().now();
            let ended = tokio::select! {
                biased;
                ended = interrupted(mailbox) => return ended,
                result = work(term.clone()) => result,
            };
            let failure = match ended {
                Err(failure) if matches!(failure.class, Class::Retry | Class::RetryAfter) => failure,
                done => return Ended::Done(done),
            };
            tracing::warn!(lease = %term.lease(), %failure, "a duty has failed and is tried again");
            // Half a leader is none: others may have more luck.
            let Some(wait) = tried.again(began_at, self.shared.clock().now(), failure.after) else {
                let wait = SIT_OUT.max(failure.after.unwrap_or_default());
                self.tell(Input::SitOut { lease: term.lease().clone(), wait }).await;
                return Ended::GivenUp;
            };
            tokio::select! {
                biased;
                ended = interrupted(mailbox) => return ended,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

/// Failures one after the other, with no work to speak of in between.
#[derive(Default)]
struct Tried {
    since: Option<Moment>,
    times: u32,
}

impl Tried {
    /// It has failed now: how long to wait before the next try, if there is to be one. What asks to be left alone for
    /// longer than is left asks for another node.
    fn again(&mut self, began_at: Moment, now: Moment, asked: Option<Duration>) -> Option<Duration> {
        if now.since(began_at) >= TRY_FOR {
            *self = Tried::default();
        }
        let since = *self.since.get_or_insert(now);
        let wait = BACKOFF.ceiling(self.times);
        self.times += 1;
        let left = TRY_FOR.saturating_sub(now.since(since));
        (!left.is_zero() && asked.is_none_or(|asked| asked <= left)).then_some(asked.unwrap_or(wait))
    }
}

/// However it ends, the lease is not wanted any more.
struct Candidacy<'h> {
    hive: &'h Hive,
    lease: &'h Name,
}

impl Drop for Candidacy<'_> {
    fn drop(&mut self) {
        self.hive.shared.close_mailbox(self.lease, Input::Unwant(self.lease.clone()));
    }
}

async fn gain(mailbox: &Arc<Mailbox>) -> Option<Term> {
    loop {
        if let Change::Gained(term) = mailbox.next().await? {
            return Some(term);
        }
    }
}

async fn interrupted<T>(mailbox: &Mailbox) -> Ended<T> {
    match mailbox.next().await {
        Some(Change::Gained(term)) => Ended::Again(term),
        Some(Change::Leave { held, .. }) => Ended::Left(held),
        Some(Change::Lost { .. }) => Ended::Lost,
        None => Ended::Over,
    }
}

fn over() -> Failure {
    Failure::retry("not-a-member", "this node has left the hive, or was refused by it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_millis(seconds * 1000)
    }

    #[test]
    fn hv_47_ten_seconds_count_from_the_first_failure() {
        let mut tried = Tried::default();
        let first = tried.again(at(0), at(3_600), None);
        assert_eq!(first, Some(BACKOFF.ceiling(0)), "it ran for an hour before it failed");
        assert!(tried.again(at(3_600), at(3_605), None).is_some_and(|wait| wait > BACKOFF.ceiling(0)));
        assert_eq!(tried.again(at(3_609), at(3_610), None), None);
    }

    #[test]
    fn hv_47_work_that_went_well_for_long_begins_anew() {
        let mut tried = Tried::default();
        tried.again(at(0), at(1), None);
        assert_eq!(tried.again(at(2), at(12), None), Some(BACKOFF.ceiling(0)));
        assert!(tried.again(at(12), at(21), None).is_some());
        assert_eq!(tried.again(at(21), at(22), None), None);
    }
    /// The lease is not kept over a pause that is longer than it would be tried for.
    #[test]
    fn hv_47_a_long_pause_is_not_waited_out_under_the_lease() {
        let seconds = Duration::from_secs;
        assert_eq!(Tried::default().again(at(0), at(1), Some(seconds(3))), Some(seconds(3)));
        assert_eq!(Tried::default().again(at(0), at(1), Some(seconds(60))), None);
        let mut tried = Tried::default();
        tried.again(at(0), at(1), None);
        assert_eq!(tried.again(at(1), at(9), Some(seconds(3))), None, "two seconds are left");
    }
}
