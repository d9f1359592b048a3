//! Requests whose caller has gone, under a pool: who counts them, and what they cost their connection.

use std::sync::atomic::AtomicBool;

use honeyflow_cassandra::Connection;
use honeyflow_cassandra::error::Cause;
use honeyflow_pool::Want;
use tokio::sync::Notify;

use super::*;
use crate::network::Network;

/// What a server keeps back until it is told.
#[derive(Clone, Default)]
struct Held {
    startups: Arc<AtomicBool>,
    release: Arc<Notify>,
}

/// Answers everything but `SELECT slow`, and new connections only while startups are not held.
fn slow(held: &Held) -> Script {
    let (starts, answers) = (held.clone(), held.clone());
    let script = Script::new(move |heard| match &heard.request {
        RequestBody::Query(query) if query.query == "SELECT slow" => Say::Nothing,
        RequestBody::Query(query) if query.query == "SELECT late" => {
            Say::After(Arc::clone(&answers.release), Box::new(text_row("late")))
        }
        RequestBody::Query(query) => text_row(&query.query),
        _ => Say::Nothing,
    });
    script.first(move |heard| match &heard.request {
        RequestBody::Startup(_) if starts.startups.load(Ordering::SeqCst) => Some(Say::Nothing),
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
    let held = Held::default();
    let network = Network::of([slow(&held)]);
    // What a connection would do by itself is none of its business here.
    let alone = Settings { orphans_max: 0, orphan_age_max: Duration::ZERO, ..Settings::default() };
    let session = Session::of(network.pool(alone, PoolSettings { max_orphans: 2, ..network.quiet(1) }));
    ready(&session).await;
    let brief = Options::within(Duration::from_millis(30));
    held.startups.store(true, Ordering::SeqCst);
    for n in 1..=3 {
        session.query("SELECT slow", &brief).await.unwrap_err();
        assert_eq!(orphans(&session), n);
    }
    // Its successor is not ready, so it serves on.
    eventually("another is dialled", || network.accepted(0) > 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    session.query("SELECT 1", &patient()).await.unwrap();
    assert_eq!(orphans(&session), 3);
    held.startups.store(false, Ordering::SeqCst);
    eventually("the worn one is gone", || orphans(&session) == 0 && network.open(0) == 1).await;
    session.query("SELECT 1", &patient()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cq_8_one_orphan_that_is_too_old_wears_its_connection_out_and_one_time_out_does_not() {
    let network = Network::of([slow(&Held::default())]);
    let session = network.session(network.quiet(1));
    ready(&session).await;
    session.query("SELECT slow", &Options::within(Duration::from_millis(30))).await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!((orphans(&session), network.accepted(0)), (1, 1));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((orphans(&session), network.accepted(0), network.open(0)), (0, 2, 1));
}

/// PL-71 CQ-1 CQ-10: an answer to nobody, one that nobody can read, and one of other columns than were promised.
#[tokio::test(start_paused = true)]
async fn pl_71_wrong_answers_are_counted_by_the_pool() {
    let network = Network::of([Script::new(|heard| match &heard.request {
        RequestBody::Query(query) if query.query == "SELECT stranger" => {
            Say::Messages(vec![(77, opcode::RESULT, Body::new().i32(1).0)])
        }
        RequestBody::Query(query) if query.query == "SELECT nonsense" => {
            Say::Answer(opcode::RESULT, Body::new().i32(2).i32(1).i32(i32::MAX).0)
        }
        RequestBody::Query(query) if query.query == "SELECT nothing" => Say::Close,
        RequestBody::Query(query) => text_row(&query.query),
        RequestBody::Prepare(_) => {
            Say::Answer(opcode::RESULT, speak::prepared(heard.version, b"id", &[], &[], &[("n", Type::Int)]))
        }
        RequestBody::Execute(_) => Say::Answer(opcode::RESULT, speak::bare_rows(2, &[vec![None, None]])),
        _ => Say::Nothing,
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

/// PL-20: its stream is taken until the answer has come, and then wakes who waits for it.
#[tokio::test(start_paused = true)]
async fn pl_20_a_late_answer_gives_its_stream_to_the_next_waiter() {
    let held = Held::default();
    let network = Network::of([slow(&held)]);
    let session = network.session(PoolSettings { streams_per_connection: 2, ..network.quiet(1) });
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

/// A server that has forgotten the statement and is then silent, at the step that is named.
fn forgetful(silent_at: &'static str, release: &Arc<Notify>) -> Script {
    let (prepares, executes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let release = Arc::clone(release);
    Script::new(move |heard| {
        let (step, say) = match &heard.request {
            RequestBody::Prepare(_) => {
                let body = speak::prepared(heard.version, b"id", &[], &[], &[]);
                let step = ["prepare", "prepare again"][prepares.fetch_add(1, Ordering::SeqCst).min(1)];
                (step, Say::Answer(opcode::RESULT, body))
            }
            RequestBody::Execute(_) if executes.fetch_add(1, Ordering::SeqCst) == 0 => {
                ("execute", refuse(0x2500, Body::new().short_bytes(b"id")))
            }
            RequestBody::Execute(_) => ("execute again", text_row("done")),
            _ => return Say::Nothing,
        };
        if step == silent_at { Say::After(Arc::clone(&release), Box::new(say)) } else { say }
    })
}

#[tokio::test(start_paused = true)]
async fn pl_20_every_message_of_a_request_is_known_to_the_pool_until_it_is_answered() {
    for silent_at in ["execute", "prepare again", "execute again"] {
        let release = Arc::new(Notify::new());
        let network = Network::of([forgetful(silent_at, &release)]);
        let session = network.session(network.quiet(1));
        ready(&session).await;
        let statement = session.prepare("SELECT 1").await.unwrap();
        let brief = Options::within(Duration::from_millis(30));
        let error = session.execute(&statement, (), &brief).await.unwrap_err();
        assert_eq!((error.kind, error.executed), (Kind::UseTimeout, Executed::Unknown), "{silent_at}");
        assert_eq!(orphans(&session), 1, "{silent_at}");
        release.notify_one();
        eventually("the late answer has come", || orphans(&session) == 0).await;
        assert_eq!(session.pool().counters().late_answers, 1, "{silent_at}");
        assert_eq!((network.accepted(0), session.pool().status().lent), (1, 0), "{silent_at}");
    }
    // So is what is prepared for the first time.
    let release = Arc::new(Notify::new());
    let network = Network::of([forgetful("prepare", &release)]);
    let session = network.session(network.quiet(1));
    ready(&session).await;
    session.prepare("SELECT 1").await.unwrap_err();
    assert_eq!(orphans(&session), 1);
}

/// An answered request leaves nothing under way, in whatever order its parts are dropped.
#[tokio::test(start_paused = true)]
async fn pl_20_an_answered_request_is_no_orphan() {
    let network = Network::of([slow(&Held::default())]);
    let session = network.session(network.quiet(1));
    ready(&session).await;
    for _ in 0..100 {
        session.query("SELECT 1", &patient()).await.unwrap();
        assert_eq!((orphans(&session), session.pool().status().idle), (0, 1));
    }
    assert_eq!(session.pool().counters().late_answers, 0);
    let loan = session.pool().get(Want::default()).await.unwrap();
    drop(loan);
    assert_eq!(session.pool().status().idle, 1);
}

/// PL-85: who came second runs on as an orphan; its late answer frees the stream and reaches nobody.
#[tokio::test(start_paused = true)]
async fn pl_85_the_loser_of_a_race_is_in_flight_until_its_answer_has_come() {
    for mode in [Mode::Shared, Mode::Exclusive] {
        let release = Arc::new(Notify::new());
        let first = Arc::new(AtomicBool::new(true));
        let script = |number: &'static str| {
            let (release, first) = (Arc::clone(&release), Arc::clone(&first));
            Script::new(move |_| match first.swap(false, Ordering::SeqCst) {
                true => Say::After(Arc::clone(&release), Box::new(text_row("late"))),
                false => text_row(number),
            })
        };
        let network = Network::of([script("0"), script("1")]);
        let session = network.session(PoolSettings {
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
            // Nobody may have it in the middle of an answer.
            _ => {
                eventually("replaced", || network.accepted(0) + network.accepted(1) == 3).await;
                release.notify_one();
                eventually("closed", || network.open(0) + network.open(1) == 2).await;
            }
        }
    }
}

/// PL-20: who has a loan for as long as he likes still gets every answer in time, or is told that there was none.
#[tokio::test(start_paused = true)]
async fn pl_20_a_request_under_a_loan_that_was_taken_out_has_its_own_deadline() {
    let network = Network::of([slow(&Held::default())]);
    let session = network.session(network.quiet(1));
    ready(&session).await;
    let mut loan = session.pool().get(Want::within(PATIENCE)).await.unwrap();
    let connection = Connection::of_loan(&mut loan);
    let brief = Options::within(Duration::from_millis(30));
    let error =
        tokio::time::timeout(PATIENCE, connection.query("SELECT slow", &brief)).await.expect("an end").unwrap_err();
    assert!(matches!(error.cause, Cause::Silent { asked: "QUERY", .. }), "{error}");
    connection.query("SELECT 1", &patient()).await.unwrap();
}
