//! Definition versions of workflows, and the runs that have begun under them.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use honeyflow_runtime::Failure;
use honeyflow_store::{
    Admin, AdminReply, Op,
    admin::{NewDefinition, ParkedFilter, RetryMode, Versions},
    write::{Checkpoint, CheckpointOutcome, WHOLE_RUN_STEP},
};

use super::{Harness, checkpoint, park, retry, settle};

fn new(workflow: &str, content: &str) -> NewDefinition {
    NewDefinition { workflow: workflow.into(), content: content.to_owned() }
}

async fn put(h: &Harness, wanted: Vec<NewDefinition>) -> Versions {
    match h.admin(Admin::PutDefinitions(wanted)).await {
        AdminReply::Versions(versions) => versions,
        other => panic!("{other:?}"),
    }
}

async fn stored(h: &Harness, workflow: Option<&str>) -> Vec<(String, u32, String)> {
    let AdminReply::Definitions(all) = h.admin(Admin::Definitions { workflow: workflow.map(Into::into) }).await else {
        panic!("no definitions")
    };
    all.into_iter().map(|one| (one.workflow.to_string(), one.version, one.content)).collect()
}

pub async fn wf_20_equal_content_keeps_its_version(h: &Harness) {
    assert_eq!(put(h, Vec::new()).await, Versions::default());
    assert_eq!(put(h, vec![new("index", "a"), new("mail", "a")]).await.numbers, [1, 1]);
    assert_eq!(put(h, vec![new("mail", "a"), new("index", "b")]).await.numbers, [1, 2]);
    assert_eq!(put(h, vec![new("index", "a")]).await.numbers, [1], "old content gets its old version");
    assert_eq!(put(h, vec![new("index", "A"), new("index", "b")]).await.numbers, [3, 2]);
    let all = [("index", 1, "a"), ("index", 2, "b"), ("index", 3, "A"), ("mail", 1, "a")];
    let all = all.map(|(workflow, version, content)| (workflow.to_owned(), version, content.to_owned()));
    assert_eq!(stored(h, None).await, all);
    assert_eq!(stored(h, Some("mail")).await, all[3..]);
}

pub async fn wf_20_concurrent_puts_agree(h: &Harness) {
    // Nodes with an old and with a new configuration start together.
    let puts = (0..20).map(|n| put(h, vec![new("index", ["old", "new"][n % 2])]));
    let numbers: Vec<u32> = join_all(puts).await.into_iter().map(|versions| versions.numbers[0]).collect();
    for (n, number) in numbers.iter().enumerate() {
        assert_eq!(*number, numbers[n % 2], "equal content gets an equal number: {numbers:?}");
    }
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>(), BTreeSet::from([&1, &2]));
    assert_eq!(stored(h, None).await.len(), 2);
}

pub async fn wf_21_a_begun_run_finds_its_definition(h: &Harness) {
    let fence = h.term().await.fence();
    for content in ["a", "b", "c"] {
        put(h, vec![new("index", content), new("mail", content)]).await;
    }
    assert_eq!(put(h, Vec::new()).await.begun, [], "no run has begun");
    // Both have version 2.
    let event = h.book("1").await;
    h.commit(&fence, vec![checkpoint("1", &[event], CheckpointOutcome::Skipped, Vec::new())]).await;
    h.commit(&fence, vec![park("2", "mail", &[])]).await;
    let begun = |versions: Versions| -> Vec<_> {
        versions.begun.into_iter().map(|one| (one.workflow.to_string(), one.version, one.content)).collect()
    };
    let named = |workflow: &str| (workflow.to_owned(), 2, "b".to_owned());
    let found = begun(put(h, vec![new("index", "c"), new("mail", "c")]).await);
    assert_eq!(found, [named("index"), named("mail")], "the definitions of a checkpoint and of a parked event");
    assert_eq!(begun(put(h, vec![new("index", "b")]).await), [named("mail")], "the current definition is not listed");
    h.commit(&fence, vec![settle(&[event], &[super::run("1", "index")])]).await;
    assert_eq!(begun(put(h, vec![new("index", "c")]).await), [named("mail")]);
}

pub async fn wf_74_a_retried_run_is_polled_with_its_checkpoints(h: &Harness) {
    let fence = h.term().await.fence();
    let (first, other) = (h.book("1").await, h.book("2").await);
    let done = CheckpointOutcome::Done(Some(std::sync::Arc::new(serde_json::json!({ "id": 7 }))));
    let saved = |key: &str, event| checkpoint(key, &[event], done.clone(), Vec::new());
    h.commit(&fence, vec![saved("1", first), saved("2", other), park("1", "index", &[first])]).await;
    assert_eq!(
        h.poll(super::everything()).await.resumed.len(),
        0,
        "a poll resumes only retried runs; a new owner recovers the others"
    );
    h.admin(retry(ParkedFilter::default())).await;
    let polled = h.poll(super::everything()).await;
    let [resumed] = &polled.resumed[..] else { panic!("{:?}", polled.resumed) };
    let retried = polled.events.iter().find(|event| event.workflow.is_some()).expect("retried");
    assert_eq!((&resumed.covers[..], resumed.version), (&[retried.id][..], 2));
    assert_eq!((&*resumed.step, &resumed.outcome), ("call", &done));
}

pub async fn wf_74_a_replay_drops_the_named_outputs(h: &Harness) {
    let fence = h.term().await.fence();
    let skipped = || CheckpointOutcome::Skipped;
    let failed = CheckpointOutcome::Failed(Failure::reject("too-late", "nothing came"));
    for (outcome, again, left) in [
        (skipped(), RetryMode::Continue, 1),
        (skipped(), RetryMode::Without(vec!["store".into()]), 1),
        (skipped(), RetryMode::Without(vec!["store".into(), "call".into()]), 0),
        (skipped(), RetryMode::FromStart, 0),
        (failed, RetryMode::Continue, 0),
    ] {
        let event = h.book("1").await;
        let saved = checkpoint("1", &[event], outcome, Vec::new());
        // A checkpoint of the run itself is dropped in every case.
        let Op::Checkpoint(own) = saved.clone() else { unreachable!("just made") };
        let own = Checkpoint { step: WHOLE_RUN_STEP.into(), outcome: CheckpointOutcome::Until(7), ..*own };
        let own = Op::Checkpoint(Box::new(own));
        h.commit(&fence, vec![own, saved, park("1", "index", &[event])]).await;
        let replay = Admin::RetryParked { filter: ParkedFilter::default(), mode: again.clone() };
        assert!(matches!(h.admin(replay).await, AdminReply::Count(1)));
        assert_eq!(h.recover().await.checkpoints.len(), left, "{again:?}");
        assert_eq!(h.parked().await, []);
        h.commit(&fence, vec![settle(&h.waiting_ids().await, &[super::run("1", "index")])]).await;
    }
}
