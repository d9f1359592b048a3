//! The page of a running node, in a real browser.

/// SE-35: the page loads, updates itself and finds a row that was just committed; rows are shown as text, and no
/// request is refused or fails.
#[test]
fn the_page_is_live_and_shows_rows_as_text_only() {
    if let Some(program) = honeyflow_page_test::missing() {
        println!("SKIPPED page: {program} is not installed");
        return;
    }
    let checked = honeyflow_page_test::check_page(env!("CARGO_BIN_EXE_honeyflow").as_ref());
    checked.unwrap_or_else(|error| panic!("{error}"));
}
