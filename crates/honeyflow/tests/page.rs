//! The page of a running node, in a real browser.

/// SE-35: it loads, moves, finds what was just committed; rows are shown as text and nothing is refused or fails.
#[test]
fn the_page_is_live_and_shows_rows_as_text_only() {
    if let Some(program) = honeyflow_page_test::missing() {
        println!("SKIPPED page: {program} is not installed");
        return;
    }
    let looked = honeyflow_page_test::look(env!("CARGO_BIN_EXE_honeyflow").as_ref());
    looked.unwrap_or_else(|error| panic!("{error}"));
}
