//! Checks the page: what a person would look for, in order.

use std::path::Path;

use crate::{
    browser::Browser,
    node::{NAME, Node},
    wait,
};

/// A title that would run if it ever became markup.
const HOSTILE: &str =
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">&lt;b&gt; foxglove";

/// Starts the binary on a small database and checks its page; the error says what is wrong.
pub fn check_page(binary: &Path) -> Result<(), String> {
    let node = Node::start(binary)?;
    let browser = Browser::start()?;
    let result = page_is_complete(&node, &browser)
        .and_then(|()| numbers_move(&node, &browser))
        .and_then(|()| committed_change_is_found(&node, &browser))
        .and_then(|()| rows_are_text_only(&node, &browser))
        .and_then(|()| without_script(&node, &browser));
    let complaints = browser.complaints()?;
    result.map_err(|error| format!("{error}\nthe browser: {complaints:?}\nthe node: {}", node.log()))?;
    if !complaints.is_empty() {
        return Err(format!("the browser's log is not empty: {complaints:?}"));
    }
    policy_holds(&browser)
}

/// The second line of defence: markup that got into the page does not run. It also shows that the test sees the
/// browser's complaints.
fn policy_holds(browser: &Browser) -> Result<(), String> {
    browser.script(
        r#"document.body.insertAdjacentHTML("beforeend", "<img src='/nothing' onerror='document.title = `owned`'>")"#,
    )?;
    wait::until("the browser says that a handler was refused", || {
        browser.complaints().ok()?.into_iter().find(|entry| entry.contains("Content Security Policy"))
    })?;
    let title = browser.script("return document.title")?;
    if title == "owned" { Err("a handler in markup has run".to_owned()) } else { Ok(()) }
}

fn page_is_complete(node: &Node, browser: &Browser) -> Result<(), String> {
    browser.open(&format!("http://{}/", node.address))?;
    expect("the node's name", &browser.text("node")?, NAME)?;
    expect("its workflow", &browser.text("workflow-0-title")?, "book")?;
    let steps =
        browser.script("return [0, 1, 2].map(at => document.getElementById(`step-0-${at}`).textContent).join()")?;
    let steps = steps.as_str().unwrap_or_default();
    if let Some(step) = ["load", "shout", "index"].into_iter().find(|step| !steps.contains(step)) {
        return Err(format!("the graph shows {steps:?}, without the step {step}"));
    }
    wait::until("the page is connected", || (browser.text("connection").ok()? == "live").then_some(()))?;
    // The browser refused neither the style sheet nor the script.
    let styled = browser.script("return getComputedStyle(document.querySelector('.tile')).display !== 'inline'")?;
    expect("the page has its style", &styled.to_string(), "true")
}

fn numbers_move(node: &Node, browser: &Browser) -> Result<(), String> {
    wait::until("the first book is indexed", || (browser.text("sink-0-documents").ok()? == "1").then_some(()))?;
    let ended = browser.text("workflow-0-ended")?;
    let uptime = browser.text("uptime")?;
    let titles: Vec<String> = (0..200).map(|number| format!("Volume {number}")).collect();
    node.insert(100, &titles)?;
    wait::until("the rate of events moves", || {
        let rate = browser.text("events-rate").ok()?;
        rate.contains(|digit: char| ('1'..='9').contains(&digit)).then_some(())
    })?;
    wait::until("the documents are counted", || (browser.text("sink-0-documents").ok()? == "201").then_some(()))?;
    wait::until("more runs have ended", || (browser.text("workflow-0-ended").ok()? != ended).then_some(()))?;
    wait::until("the uptime changes", || (browser.text("uptime").ok()? != uptime).then_some(()))
}

fn committed_change_is_found(node: &Node, browser: &Browser) -> Result<(), String> {
    browser.type_into("search", "wildflower")?;
    wait::until("there is no such book yet", || (browser.text("results-note").ok()? == "0 hits").then_some(()))?;
    node.insert(500, &["The wildflower almanac".to_owned()])?;
    // Nothing is typed again: the page repeats the search by itself.
    let hit = wait::until("the change just committed is found", || hits(browser).ok()?.pop())?;
    if hit.contains("The wildflower almanac") && hit.contains("THE WILDFLOWER ALMANAC") {
        Ok(())
    } else {
        Err(format!("the hit says {hit:?}"))
    }
}

fn rows_are_text_only(node: &Node, browser: &Browser) -> Result<(), String> {
    node.insert(600, &[HOSTILE.to_owned()])?;
    browser.type_into("search", "foxglove")?;
    let hit =
        wait::until("the hostile row is found", || hits(browser).ok()?.into_iter().find(|hit| hit.starts_with("600")))?;
    is_text_only(browser, &hit)
}

/// The same check, rendered on the server.
fn without_script(node: &Node, browser: &Browser) -> Result<(), String> {
    browser.open(&format!("http://{}/?sink=book&q=foxglove", node.address))?;
    let hit = hits(browser)?.pop().ok_or("a search in the address has no hit")?;
    is_text_only(browser, &hit)
}

fn is_text_only(browser: &Browser, hit: &str) -> Result<(), String> {
    if !hit.contains(HOSTILE) {
        return Err(format!("the page shows the row differently: {hit:?}"));
    }
    let made = browser.script(
        "return [document.title, document.querySelectorAll('#results img, #results script, #node i').length].join()",
    )?;
    let made = made.as_str().unwrap_or_default();
    if made.contains("owned") || !made.ends_with(",0") {
        return Err(format!("a row's text became markup: {made}"));
    }
    Ok(())
}

fn hits(browser: &Browser) -> Result<Vec<String>, String> {
    let found = browser.script("return [...document.querySelectorAll('#results li')].map(hit => hit.textContent)")?;
    let found = found.as_array().cloned().unwrap_or_default();
    Ok(found.iter().filter_map(|hit| hit.as_str().map(str::to_owned)).collect())
}

fn expect(what: &str, found: &str, wanted: &str) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: the page shows {found:?}, not {wanted:?}")) }
}
