//! Orphans in a pool: how they are counted, and when their connection is replaced.

use std::sync::atomic::AtomicBool;

use honeyflow_cassandra::Connection;
use honeyflow_cassandra::error::Cause;
use honeyflow_pool::RequestOptions;
use tokio::sync::Notify;

use super::*;
use crate::network::Network;

/// Replies that a server holds back until the test releases them.
#[derive(Clone, Default)]
struct HeldReplies {
    startups: Arc<AtomicBool>,
    release: Arc<Notify>,
}

/// A server that answers everything but `SELECT slow`, and new connections only while startups are not held.
fn slow(held: &HeldReplies) -> Script {
    let (starts, answers) = (held.clone(), held.clone());
    let script = Script::new(move |received| match &received.request {
        RequestBody::Query(query) if query.query == "SELECT slow" => Reply::Nothing,
        RequestBody::Query(query) if query.query == "SELECT late" => {
            Reply::After(Arc::clone(&answers.release), Box::new(text_row("late")))
        }
        RequestBody::Query(query) => text_row(&query.query),
        _ => Reply::Nothing,
    });
    script.first(move |received| match &received.request {
        RequestBody::Startup(_) if starts.startups.load(Ordering::SeqCst) => Some(Reply::Nothing),
        _ => None,
    })
}

fn orphans(session: &Session) -> u32 {
    session.pool().status().servers[0].orphans
}

async fn ready(session: &Session) {
    assert!(session.pool().control().ready(1, Instant::now() + PATIENCE).await);
}

#[tokio::test(start_paused = true)]
async fn cq_8_a_connection_with_too_many_orphans_is_replaced_before_it_is_closed() {
    let held = HeldReplies::default();
    let network = Network::of([slow(&held)]);
    // These limits apply outside of loans; in a pool they must have no effect.
    let alone = Settings { orphans_max: 0, orphan_age_max: Duration::ZERO, ..Settings::default() };
    let session =
        Session::from_pool(network.pool(alone, honeyflow_pool::Settings { max_orphans: 2, ..network.quiet(1) }));
    ready(&session).await;
    let brief = Options::within(Duration::from_millis(30));
    held.startups.store(true, Ordering::SeqCst);
    for n in 1..=3 {
        session.query("SELECT slow", &brief).await.unwrap_err();
        assert_eq!(orphans(&session), n);
    }
    // The replacement is not ready, so the connection is still used.
    eventually("another is dialled", || network.accepted(0) > 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    session.query("SELECT 1", &patient()).await.unwrap();
    assert_eq!(orphans(&session), 3);
    held.startups.store(false, Ordering::SeqCst);
    eventually("the connection with the orphans is closed", || orphans(&session) == 0 && network.open(0) == 1).await;
    session.query("SELECT 1", &patient()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cq_8_one_orphan_that_is_too_old_replaces_its_connection_and_a_recent_one_does_not() {
    let network = Network::of([slow(&HeldReplies::default())]);
    let session = network.session(network.quiet(1));
    ready(&session).await;
    session.query("SELECT slow", &Options::within(Duration::from_millis(30))).await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!((orphans(&session), network.accepted(0)), (1, 1));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((orphans(&session), network.accepted(0), network.open(0)), (0, 2, 1));
}

/// PL-71 CQ-1 CQ-10: an answer without a request, an unreadable one, and one with other columns than announced.
#[tokio::test(start_paused = true)]
async fn pl_71_wrong_answers_are_counted_by_the_pool() {
    let network = Network::of([Script::new(|received| match &received.request {
        RequestBody::Query(query) if query.query == "SELECT stranger" => {
            Reply::Messages(vec![(77, opcode::RESULT, Body::new().i32(1).0)])
        }
        RequestBody::Query(query) if query.query == "SELECT nonsense" => {
            Reply::Answer(opcode::RESULT, Body::new().i32(2).i32(1).i32(i32::MAX).0)
        }
        RequestBody::Query(query) if query.query == "SELECT nothing" => Reply::Close,
        RequestBody::Query(query) => text_row(&query.query),
        RequestBody::Prepare(_) => {
            Reply::Answer(opcode::RESULT, speak::prepared(received.version, b"id", &[], &[], &[("n", Type::Int)]))
        }
        RequestBody::Execute(_) => Reply::Answer(opcode::RESULT, speak::bare_rows(2, &[vec![None, None]])),
        _ => Reply::Nothing,
    })]);
    let session = network.session(network.quiet(1));
    for (text, counted) in [("SELECT stranger", 1), ("SELECT nothing", 1), ("SELECT nonsense", 2)] {
        ready(&session).await;
        session.query(text, &patient()).await.unwrap_err();
        eventually("its connection is gone", || session.pool().status().servers[0].open == 0).await;
        assert_eq!(session.pool().counters().wrong_answers, counted, "{text}");
    }
    ready(&session).await;
    let statement = session.prepare("SELECT n").await.unwrap();
    session.execute(&statement, (), &patient()).await.unwrap_err();
    eventually("its connection is gone", || session.pool().status().servers[0].open == 0).await;
    assert_eq!(session.pool().counters().wrong_answers, 3);
}

/// PL-20: an orphan uses its stream until the answer has come; then the stream goes to the next waiter.
#[tokio::test(start_paused = true)]
async fn pl_20_a_late_answer_gives_its_stream_to_the_next_waiter() {
    let held = HeldReplies::default();
    let network = Network::of([slow(&held)]);
    let session = network.session(honeyflow_pool::Settings { streams_per_connection: 2, ..network.quiet(1) });
    ready(&session).await;
    for text in ["SELECT slow", "SELECT late"] {
        session.query(text, &Options::within(Duration::from_millis(30))).await.unwrap_err();
    }
    let next = {
        let session = session.clone();
        tokio::spawn(async move { session.query("SELECT next", &patient()).await })
    };
    eventually("it waits", || session.pool().status().waiting[1] == 1).await;
    held.release.notify_one();
    next.await.unwrap().unwrap();
    assert_eq!((orphans(&session), session.pool().counters().late_answers), (1, 1));
}

/// A server that has forgotten the statement, and does not reply at the step `silent_at`.
fn forgetful(silent_at: &'static str, release: &Arc<Notify>) -> Script {
    let (prepares, executes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let release = Arc::clone(release);
    Script::new(move |received| {
        let (step, say) = match &received.request {
            RequestBody::Prepare(_) => {
                let body = speak::prepared(received.version, b"id", &[], &[], &[]);
                let step = ["prepare", "prepare again"][prepares.fetch_add(1, Ordering::SeqCst).min(1)];
                (step, Reply::Answer(opcode::RESULT, body))
            }
            RequestBody::Execute(_) if executes.fetch_add(1, Ordering::SeqCst) == 0 => {
                ("execute", refuse(0x2500, Body::new().short_bytes(b"id")))
            }
            RequestBody::Execute(_) => ("execute again", text_row("done")),
            _ => return Reply::Nothing,
        };
        if step == silent_at { Reply::After(Arc::clone(&release), Box::new(say)) } else { say }
    })
}

#[tokio::test(start_paused = true)]
async fn pl_20_the_pool_counts_every_message_of_a_request_until_it_is_answered() {
    for silent_at in ["execute", "prepare again", "execute again"] {
        let release = Arc::new(Notify::new());
        let network = Network::of([forgetful(silent_at, &release)]);
        let session = network.session(network.quiet(1));
        ready(&session).await;
        let statement = session.prepare("SELECT 1").await.unwrap();
        let brief = Options::within(Duration::from_millis(30));
        let error = session.execute(&statement, (), &brief).await.unwrap_err();
        assert_eq!((error.kind, error.executed), (Kind::UseTimeout, Execution::Unknown), "{silent_at}");
        assert_eq!(orphans(&session), 1, "{silent_at}");
        release.notify_one();
        eventually("the late answer has come", || orphans(&session) == 0).await;
        assert_eq!(session.pool().counters().late_answers, 1, "{silent_at}");
        assert_eq!((network.accepted(0), session.pool().status().lent), (1, 0), "{silent_at}");
    }
    // The first preparation is counted too.
    let release = Arc::new(Notify::new());
    let network = Network::of([forgetful("prepare", &release)]);
    let session = network.session(network.quiet(1));
    ready(&session).await;
    session.prepare("SELECT 1").await.unwrap_err();
    assert_eq!(orphans(&session), 1);
}

/// An answered request is no longer in flight, in any order in which its parts are dropped.
#[tokio::test(start_paused = true)]
async fn pl_20_an_answered_request_is_no_orphan() {
    let network = Network::of([slow(&HeldReplies::default())]);
    let session = network.session(network.quiet(1));
    ready(&session).await;
    for _ in 0..100 {
        session.query("SELECT 1", &patient()).await.unwrap();
        assert_eq!((orphans(&session), session.pool().status().idle), (0, 1));
    }
    assert_eq!(session.pool().counters().late_answers, 0);
    let loan = session.pool().get(RequestOptions::default()).await.unwrap();
    drop(loan);
    assert_eq!(session.pool().status().idle, 1);
}

/// PL-85: the slower of two requests continues as an orphan; its late answer frees the stream and reaches no caller.
#[tokio::test(start_paused = true)]
async fn pl_85_the_loser_of_a_race_is_in_flight_until_its_answer_has_come() {
    for mode in [Mode::Shared, Mode::Exclusive] {
        let release = Arc::new(Notify::new());
        let first = Arc::new(AtomicBool::new(true));
        let script = |number: &'static str| {
            let (release, first) = (Arc::clone(&release), Arc::clone(&first));
            Script::new(move |_| match first.swap(false, Ordering::SeqCst) {
                true => Reply::After(Arc::clone(&release), Box::new(text_row("late"))),
                false => text_row(number),
            })
        };
        let network = Network::of([script("0"), script("1")]);
        let session = network.session(honeyflow_pool::Settings {
            mode,
            speculate_after: SpeculateAfter::Time(Duration::from_millis(20)),
            speculate_budget: 100,
            ..network.quiet(1)
        });
        assert!(session.pool().control().ready(2, Instant::now() + PATIENCE).await);
        let how = patient().idempotent();
        let rows = session.query("SELECT 1", &how).await.unwrap().into_rows();
        let (answer,) = rows.first::<(String,)>().unwrap().unwrap();
        assert_ne!(answer, "late");
        let counters = session.pool().counters();
        assert_eq!((counters.speculations, counters.speculations_won), (1, 1), "{mode:?}");
        let all_orphans = || session.pool().status().servers.iter().map(|server| server.orphans).sum::<u32>();
        match mode {
            Mode::Shared => {
                assert_eq!((all_orphans(), session.pool().status().lent), (1, 0));
                release.notify_one();
                eventually("the late answer has come", || all_orphans() == 0).await;
                assert_eq!(session.pool().counters().late_answers, 1);
                assert_eq!(network.accepted(0) + network.accepted(1), 2);
            }
            // No other request may use the connection in the middle of an answer.
            _ => {
                eventually("replaced", || network.accepted(0) + network.accepted(1) == 3).await;
                release.notify_one();
                eventually("closed", || network.open(0) + network.open(1) == 2).await;
            }
        }
    }
}

/// PL-20: with a loan of any length, each request still gets its answer, or an error, within its own deadline.
#[tokio::test(start_paused = true)]
async fn pl_20_a_request_on_a_checked_out_loan_has_its_own_deadline() {
    let network = Network::of([slow(&HeldReplies::default())]);
    let session = network.session(network.quiet(1));
    ready(&session).await;
    let mut loan = session.pool().get(RequestOptions::within(PATIENCE)).await.unwrap();
    let connection = Connection::of_loan(&mut loan);
    let brief = Options::within(Duration::from_millis(30));
    let error =
        tokio::time::timeout(PATIENCE, connection.query("SELECT slow", &brief)).await.expect("an end").unwrap_err();
    assert!(matches!(error.cause, Cause::Silent { asked: "QUERY", .. }), "{error}");
    connection.query("SELECT 1", &patient()).await.unwrap();
}
