//! Rows and the documents they lead to.

use honeyflow_event::{Changes, Event, Kind, PRIORITY_FAN_OUT, shard};
use honeyflow_runtime::{Class, Failure};
use honeyflow_source::Leads;
use honeyflow_source_outbox::{Edge, Entity, FanOutMode};

use crate::store::{by_key, by_statement, entity, key, leads, no_sql, poll, poll_shard, row, with_payload};

const BY_AUTHOR: &str = "select book_id from book_author where author_id in $keys";

/// Entities: books, and their authors.
fn library() -> Vec<Entity> {
    vec![
        entity("book", vec![by_statement("author", BY_AUTHOR), by_key("book_author", &[], &["book_id"])]),
        entity("author", vec![]),
    ]
}

fn books(count: usize) -> impl Fn(&str, &str) -> Result<Vec<String>, Failure> + Send + Sync + 'static {
    move |text, _| {
        assert_eq!(text, BY_AUTHOR);
        Ok((0..count).map(|n| n.to_string()).collect())
    }
}

#[tokio::test]
async fn ob_6_a_row_leads_to_every_entity_of_its_table_without_a_query() {
    let mut entities = library();
    entities.push(Entity { table: "book".into(), ..entity("card", vec![]) });
    let events = vec![row(1, "book", "7"), row(2, "BOOK", "8"), row(3, "card", "9")];
    let asked = poll(&entities, events, no_sql).await;
    let intake = asked.intake.unwrap();
    let leads: Vec<_> = intake.taken.iter().map(|taken| crate::store::text(&taken.leads)).collect();
    assert_eq!(leads, ["book 7, card 7", "book 8, card 8", "card 9"]);
    assert_eq!((asked.loads, intake.schema_version), (0, 7));
    assert_eq!(intake.taken.iter().map(|taken| taken.newest).collect::<Vec<_>>(), [false, false, true]);
}

#[tokio::test]
async fn ob_26_an_edge_is_followed_in_sql_once_per_cause() {
    let events = vec![row(1, "author", "5"), row(2, "author", "5"), row(3, "author", "6")];
    let asked = poll(&library(), events, |_, key| Ok(vec![format!("{key}0"), format!("{key}1")])).await;
    let leads: Vec<_> = asked.intake.unwrap().taken.iter().map(|taken| crate::store::text(&taken.leads)).collect();
    assert_eq!(leads, ["author 5, book 50, book 51", "author 5, book 50, book 51", "author 6, book 60, book 61"]);
    assert_eq!(asked.loads, 2);
}

#[tokio::test]
async fn ob_8_every_payload_is_followed_before_merging() {
    let moved = |id, from: i64, to: i64| {
        with_payload(
            row(id, "book_author", "1"),
            &format!(r#"{{"old":{{"book_id":{from}}},"new":{{"book_id":{to}}}}}"#),
        )
    };
    let gone = with_payload(row(3, "book_author", "1"), r#"{"old":{"book_id":3}}"#);
    let unlinked = with_payload(row(4, "book_author", "1"), r#"{"old":{"book_id":null},"new":{"book_id":null}}"#);
    let leads = leads(&library(), vec![moved(1, 1, 2), moved(2, 2, 3), gone, unlinked], no_sql).await;
    assert_eq!(leads, ["book 1, book 2", "book 2, book 3", "book 3", ""]);
}

#[tokio::test]
async fn ob_26_targets_are_named_once() {
    let itself = entity("page", vec![by_statement("page", "children"), by_key("page", &["id"], &["parent"])]);
    let event = with_payload(row(1, "page", "2"), r#"{"old":{"parent":1},"new":{"parent":2}}"#);
    let leads = leads(&[itself], vec![event], |_, _| Ok(vec!["1".into(), "3".into(), "2".into()])).await;
    assert_eq!(leads, ["page 2, page 1, page 3"]);
}

#[tokio::test]
async fn ob_29_a_fan_out_up_to_a_page_stays_in_memory() {
    let leads = leads(&library(), vec![row(1, "author", "5")], books(100)).await;
    assert_eq!(leads[0].split(", ").count(), 101);
}

#[tokio::test]
async fn ob_29_a_larger_fan_out_goes_through_rows() {
    let mut entities = library();
    entities.push(entity("shelf", vec![by_statement("author", "shelves")]));
    let cause = Event {
        dedupe: Some("d".into()),
        tenant: "t".into(),
        change: Changes::UPDATE,
        columns: Some(r#"["name"]"#.into()),
        ..row(9, "author", "5")
    };
    let answers = |text: &str, _: &str| match text {
        "shelves" => Ok(vec!["s1".to_owned()]),
        _ => Ok((0..5000).map(|n| n.to_string()).collect()),
    };
    let intake = poll(&entities, vec![cause], answers).await.intake.unwrap();
    let Leads::Replace(rows) = &intake.taken[0].leads else { panic!("{:?}", intake.taken[0].leads) };
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.kind, &*row.entity, &*row.key, row.priority, row.dedupe.as_deref(), row.payload.is_some()))
        .collect();
    assert_eq!(
        found,
        [
            (Kind::Row, "author", "5", 3, Some("d"), false),
            (Kind::Row, "shelf", "s1", 3, None, true),
            (Kind::FanOut, "author", "5", PRIORITY_FAN_OUT, None, true),
        ]
    );
    assert!(rows.iter().all(|row| row.root == Some(9) && &*row.tenant == "t" && row.workflow.is_none()));
    let changes: Vec<_> = rows.iter().map(|row| (row.change, row.columns.as_deref())).collect();
    let own = (Changes::UPDATE, Some(r#"["name"]"#));
    assert_eq!(changes, [own, (Changes::RELATED, None), (Changes::UNKNOWN, None)]);
    assert_eq!(rows[1].payload.as_deref(), Some(r#"{"cause":{"entity":"author","id":9,"key":"5"}}"#));

    // The new rows are polled: they lead to their own documents only, and to a page.
    let again = |n: usize| Event {
        kind: rows[n].kind,
        entity: rows[n].entity.clone(),
        key: rows[n].key.clone(),
        root: rows[n].root,
        change: Changes::UNKNOWN,
        columns: None,
        payload: rows[n].payload.clone(),
        ..row(10, "", "")
    };
    let position: String = rows[2].payload.as_deref().unwrap().replace("null", "\"0444\"");
    let moved_on = Event { payload: Some(position.into()), ..again(2) };
    let intake = poll(&entities, vec![again(0), again(1), again(2), moved_on], no_sql).await.intake.unwrap();
    let leads: Vec<_> = intake.taken.iter().map(|taken| crate::store::text(&taken.leads)).collect();
    assert_eq!(leads, ["author 5", "shelf s1", "page of book after None", "page of book after Some(\"0444\")"]);
    let Leads::Page(page) = &intake.taken[2].leads else { panic!() };
    assert_eq!((page.root, &page.causes[..], &*page.statement.text), (9, &["5".into()][..], BY_AUTHOR));
}

/// A fill, a repair or a retry is meant for one document: nothing has changed that its containers would show.
#[tokio::test]
async fn ob_30_a_row_that_names_its_workflow_leads_to_its_document_alone() {
    let named = Event { workflow: Some("index".into()), ..row(9, "author", "5") };
    let intake = poll(&library(), vec![named], no_sql).await.intake.unwrap();
    assert_eq!(crate::store::text(&intake.taken[0].leads), "author 5");
}

/// Only the owner of a document's shard works on the document.
#[tokio::test]
async fn ob_30_a_document_of_another_shard_is_reached_by_a_row() {
    let entities = library();
    let of = |entity: &str, key: &str| shard::compute("", entity, key, 64);
    let author = Event { dedupe: Some("d".into()), payload: Some("{}".into()), ..row(9, "author", "5") };
    let asked =
        poll_shard(of("author", "5"), 64, &entities, vec![author], |_, _| Ok(vec!["1".into(), "2".into()])).await;
    let taken = asked.intake.unwrap().taken;
    let Leads::Replace(rows) = &taken[0].leads else { panic!("{:?}", taken[0].leads) };
    let found: Vec<_> =
        rows.iter().map(|row| (&*row.entity, &*row.key, row.dedupe.is_some(), row.payload.is_some())).collect();
    assert_eq!(found, [("author", "5", true, true), ("book", "1", false, true), ("book", "2", false, true)]);
    for row in rows {
        let again =
            Event { entity: row.entity.clone(), key: row.key.clone(), root: row.root, ..crate::store::row(10, "", "") };
        let home = of(&row.entity, &row.key);
        let taken = poll_shard(home, 64, &entities, vec![again], no_sql).await.intake.unwrap().taken;
        assert_eq!(
            crate::store::text(&taken[0].leads),
            format!("{} {}", row.entity, row.key),
            "in its own shard it leads to its document"
        );
    }
}

/// A row named by its table can lie in another shard than the document.
#[tokio::test]
async fn ob_30_a_row_named_by_its_table_is_moved_to_the_documents_shard() {
    let entities = [Entity { table: "BOOKS".into(), ..entity("book", vec![]) }];
    let home = shard::compute("", "books", "7", 64);
    assert_ne!(home, shard::compute("", "book", "7", 64));
    let taken = poll_shard(home, 64, &entities, vec![row(1, "books", "7")], no_sql).await.intake.unwrap().taken;
    let Leads::Replace(rows) = &taken[0].leads else { panic!("{:?}", taken[0].leads) };
    assert_eq!((rows.len(), &*rows[0].entity, &*rows[0].key), (1, "book", "7"));
}

#[tokio::test]
async fn ob_29_a_rewritten_edge_starts_over() {
    let fan_out = |entity: &str| Event {
        kind: Kind::FanOut,
        root: Some(1),
        change: Changes::UNKNOWN,
        columns: None,
        payload: Some(r#"{"entity":"book","edge":"of another time","after":"77"}"#.into()),
        ..row(2, entity, "5")
    };
    let found = leads(&library(), vec![fan_out("author")], |_, _| Ok(vec!["10".into()])).await;
    assert_eq!(found, ["author 5, book 10"]);
    let found = leads(&library(), vec![fan_out("forgotten")], no_sql).await;
    assert_eq!(found, [""], "no entity uses that table any more");
    let found = leads(&library(), vec![Event { payload: None, ..fan_out("author") }], no_sql).await;
    assert_eq!(found, ["unreadable: unreadable-payload"]);
}

#[tokio::test]
async fn ob_28_shallow_edges_follow_only_the_link() {
    let shallow = |edge: Edge| Edge { fan_out: FanOutMode::Shallow, ..edge };
    let entities = [
        entity("book", vec![shallow(by_statement("author", BY_AUTHOR)), shallow(by_key("link", &[], &["book_id"]))]),
        entity("author", vec![]),
    ];
    let author = |payload| with_payload(row(1, "author", "5"), payload);
    let link = |payload| with_payload(row(2, "link", "1"), payload);
    let events = vec![
        author(r#"{"old":{"id":5},"new":{"id":5}}"#),
        author(r#"{"new":{"id":5}}"#),
        author(r#"{"old":{"id":5}}"#),
        row(3, "author", "5"),
        link(r#"{"old":{"book_id":1},"new":{"book_id":1}}"#),
        link(r#"{"old":{"book_id":1},"new":{"book_id":2}}"#),
    ];
    let found = leads(&entities, events, |_, _| Ok(vec!["9".into()])).await;
    assert_eq!(found, ["author 5", "author 5, book 9", "author 5, book 9", "author 5, book 9", "", "book 1, book 2"]);

    let none = [
        entity("book", vec![Edge { fan_out: FanOutMode::None, ..by_statement("author", BY_AUTHOR) }]),
        entity("author", vec![]),
    ];
    assert_eq!(leads(&none, vec![row(1, "author", "5")], no_sql).await, ["author 5"]);
}

#[tokio::test]
async fn ob_4_a_row_without_payload_is_complete() {
    let linked = |table_key: &[&str]| [entity("book", vec![by_key("link", table_key, &["book_id"])])];
    let found = leads(&linked(&["book_id", "author_id"]), vec![row(1, "link", "7|8")], no_sql).await;
    assert_eq!(found, ["book 7"], "the key itself names the book");
    let found = leads(&linked(&["book_id", "author_id"]), vec![row(1, "link", "7")], no_sql).await;
    assert_eq!(found, ["unreadable: bad-key"]);
    let found = leads(&linked(&["id"]), vec![row(1, "link", "3")], |text, key| {
        assert_eq!((text, key), (r#"select t."book_id" from "link" t join $keys k on t."id" = k."id""#, "3"));
        Ok(vec!["7".into()])
    })
    .await;
    assert_eq!(found, ["book 7"], "the current row is looked up");
    assert_eq!(leads(&linked(&[]), vec![row(1, "link", "3")], no_sql).await, ["unreadable: no-payload"]);
}

#[tokio::test]
async fn ob_6_an_entity_with_another_key_is_reached_by_the_payload() {
    let by_isbn = Entity { table: "book".into(), key: key(&["isbn"]), ..entity("offer", vec![]) };
    let event = with_payload(row(1, "book", "7"), r#"{"old":{"isbn":11},"new":{"isbn":12}}"#);
    let found = leads(&[entity("book", vec![]), by_isbn], vec![event], no_sql).await;
    assert_eq!(found, ["book 7, offer 11, offer 12"]);
}

/// WF-142: what happened to the row under the second key follows from OLD and NEW, not from the event of the first key.
#[tokio::test]
async fn ob_6_an_entity_with_another_key_has_changes_of_its_own() {
    let by_isbn = Entity { table: "book".into(), key: key(&["isbn"]), ..entity("offer", vec![]) };
    let entities = [entity("book", vec![]), by_isbn];
    let (insert, update, delete) = (Changes::INSERT, Changes::UPDATE, Changes::DELETE);
    for (change, payload, expected) in [
        (insert, r#"{"new":{"isbn":11}}"#, vec![("11", insert)]),
        (delete, r#"{"old":{"isbn":11}}"#, vec![("11", delete)]),
        (update, r#"{"old":{"isbn":11},"new":{"isbn":11}}"#, vec![("11", update)]),
        (update, r#"{"old":{"isbn":11},"new":{"isbn":12}}"#, vec![("11", delete), ("12", insert)]),
        (update, r#"{"old":{"isbn":null},"new":{"isbn":12}}"#, vec![("12", insert)]),
        (update, r#"{"old":{"isbn":11},"new":{"isbn":null}}"#, vec![("11", delete)]),
        // The book got another id: the offer has only been updated.
        (insert, r#"{"old":{"isbn":11},"new":{"isbn":11}}"#, vec![("11", update)]),
        (delete, r#"{"old":{"isbn":11},"new":{"isbn":11}}"#, vec![("11", update)]),
        (Changes::UNKNOWN, r#"{"old":{"isbn":11}}"#, vec![("11", Changes::UNKNOWN)]),
    ] {
        let event = Event { change, ..with_payload(row(1, "book", "7"), payload) };
        let intake = poll(&entities, vec![event], no_sql).await.intake.unwrap();
        let Leads::To(leads) = &intake.taken[0].leads else { panic!("{:?}", intake.taken[0].leads) };
        let offers = leads.iter().filter(|lead| *lead.target.entity == *"offer");
        let found: Vec<_> = offers.map(|lead| (&*lead.target.key, lead.change)).collect();
        assert_eq!(found, expected, "{change:?} {payload}");
    }
}

#[tokio::test]
async fn ob_59_a_message_leads_to_the_entity_it_names() {
    let event = Event { kind: Kind::Message, payload: Some("anything".into()), ..row(1, "order", "A-1") };
    assert_eq!(leads(&library(), vec![event], no_sql).await, ["order A-1"]);
}

#[tokio::test]
async fn ob_23_unreadable_rows_are_parked_or_held() {
    let events = vec![
        Event { format: 3, ..row(1, "book", "1") },
        with_payload(row(2, "author", "1"), "not JSON"),
        row(3, "bok", "1"),
        row(4, "book", &"x".repeat(1025)),
        Event { kind: Kind::Truncate, ..row(5, "book", "") },
        row(6, "book", "1"),
    ];
    let found = leads(&library(), events, no_sql).await;
    assert_eq!(
        found,
        [
            "held: unknown-format",
            "unreadable: unreadable-payload",
            "unreadable: unknown-entity",
            "unreadable: key-too-long",
            "unreadable: unknown-kind",
            "book 1",
        ]
    );
}

#[tokio::test]
async fn ob_46_failures_of_an_edge_by_class() {
    let entities = library();
    let failing = |class| {
        poll(&entities, vec![row(1, "book", "1"), row(2, "author", "5")], move |_, _| {
            Err(Failure::new(class, "broken", "x"))
        })
    };
    for class in [Class::Retry, Class::RetryAfter] {
        assert_eq!(failing(class).await.intake.unwrap_err().class, class, "the poll is repeated, no row is lost");
    }
    let found = |intake: honeyflow_source::Intake| -> Vec<_> {
        intake.taken.iter().map(|taken| crate::store::text(&taken.leads)).collect()
    };
    assert_eq!(found(failing(Class::Fatal).await.intake.unwrap()), ["book 1", "held: broken"]);
    assert_eq!(found(failing(Class::Reject).await.intake.unwrap()), ["book 1", "unreadable: broken"]);
}
