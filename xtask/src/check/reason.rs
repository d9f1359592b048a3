//! Every outside dependency of the workspace says why it is there, in a comment beside it or right above it.

pub fn findings(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().enumerate().skip_while(|(_, line)| line.trim() != "[workspace.dependencies]").skip(1);
    let mut findings = Vec::new();
    let mut explained_above = false;
    for (index, line) in lines.take_while(|(_, line)| !line.starts_with('[')) {
        let (code, comment) = split_comment(line);
        if let Some((name, value)) = code.split_once('=') {
            let explained = explained_above || !comment.trim().is_empty();
            if !explained && !value.contains("path =") {
                findings.push(format!(
                    "Cargo.toml:{}: {} has no comment saying why it is there",
                    index + 1,
                    name.trim()
                ));
            }
            explained_above = false;
        } else {
            // A heading over a group explains the group, not its first member: only a comment that directly precedes
            // a single entry counts, and groups begin after an empty line.
            explained_above = !comment.trim().is_empty() && !follows_empty_line(manifest, index);
        }
    }
    findings
}

fn follows_empty_line(manifest: &str, index: usize) -> bool {
    index
        .checked_sub(1)
        .and_then(|above| manifest.lines().nth(above))
        .is_none_or(|line| line.trim().is_empty() || line.starts_with('['))
}

/// Code and comment of a line of TOML; a `#` inside a string is code.
fn split_comment(line: &str) -> (&str, &str) {
    let mut quoted = false;
    for (index, byte) in line.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b'#' if !quoted => return (&line[..index], &line[index + 1..]),
            _ => {}
        }
    }
    (line, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_reason_is_found() {
        let manifest = "[workspace.dependencies]\n# ours\nours = { path = \"lib/ours\" }\n\n# shared\nserde = \"1\" # data\nlog = \"0#1\"\n# allocator\nmimalloc = \"1\"\n[profile.dev]\nx = 1\n";
        assert_eq!(findings(manifest), ["Cargo.toml:7: log has no comment saying why it is there"]);
    }

    #[test]
    fn a_heading_does_not_explain_the_first_of_its_group() {
        let manifest = "[workspace.dependencies]\n# adapters\nrusqlite = \"1\"\n";
        assert_eq!(findings(manifest).len(), 1);
    }
}
