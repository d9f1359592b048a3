//! Licences: parses SPDX expressions as far as needed to compare them with the allow-list of `deny.toml`.

use crate::metadata::Metadata;

/// The `allow` list of `[licenses]`.
pub fn allowed(deny: &str) -> Vec<String> {
    let section = deny.lines().skip_while(|line| line.trim() != "[licenses]").skip(1);
    let section = section.take_while(|line| !line.starts_with('['));
    let lines = section.skip_while(|line| !line.starts_with("allow"));
    let mut found = Vec::new();
    for line in lines {
        let code = line.split('#').next().unwrap_or_default();
        found.extend(code.split('"').skip(1).step_by(2).map(str::to_owned));
        if code.contains(']') {
            break;
        }
    }
    found
}

pub fn findings(metadata: &Metadata, allowed: &[String]) -> Vec<String> {
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let verdict = match package.license.as_deref() {
            None => Err("names no licence".to_owned()),
            Some(expression) => match permitted(expression, allowed) {
                Some(true) => Ok(()),
                Some(false) => Err(format!("has the licence `{expression}`, which deny.toml does not allow")),
                None => Err(format!("has a licence that cannot be read: `{expression}`")),
            },
        };
        if let Err(what) = verdict {
            findings.push(format!("{} {} {what}", package.name, package.version));
        }
    }
    findings
}

/// Whether the expression can be satisfied by allowed licences alone; `None` if it is not an expression.
pub fn permitted(expression: &str, allowed: &[String]) -> Option<bool> {
    // Old manifests write `MIT/Apache-2.0`, which means OR.
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = Words { words: spaced.split_whitespace().collect(), at: 0 };
    let verdict = any(&mut words, allowed)?;
    (words.at == words.words.len()).then_some(verdict)
}

struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied()?;
        self.at += 1;
        Some(word)
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.words.get(self.at) == Some(&word);
        self.at += usize::from(found);
        found
    }
}

fn any(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut verdict = all(words, allowed)?;
    while words.eat("OR") {
        verdict |= all(words, allowed)?;
    }
    Some(verdict)
}

fn all(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut verdict = one(words, allowed)?;
    while words.eat("AND") {
        verdict &= one(words, allowed)?;
    }
    Some(verdict)
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    match words.next()? {
        "(" => {
            let verdict = any(words, allowed)?;
            words.eat(")").then_some(verdict)
        }
        ")" | "OR" | "AND" | "WITH" => None,
        name if words.eat("WITH") => {
            let whole = format!("{name} WITH {}", words.next()?);
            Some(allowed.contains(&whole))
        }
        name => Some(allowed.iter().any(|allowed| allowed == name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(expression: &str) -> Option<bool> {
        let allowed = ["MIT", "Apache-2.0", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        permitted(expression, &allowed)
    }

    #[test]
    fn or_needs_one_and_needs_all() {
        assert_eq!(verdict("MIT"), Some(true));
        assert_eq!(verdict("GPL-3.0-only"), Some(false));
        assert_eq!(verdict("GPL-3.0-only OR MIT"), Some(true));
        assert_eq!(verdict("GPL-3.0-only AND MIT"), Some(false));
        assert_eq!(verdict("MIT/Apache-2.0"), Some(true));
        assert_eq!(verdict("Apache-2.0 / MIT / MPL-2.0"), Some(true));
    }

    #[test]
    fn and_binds_tighter_than_or() {
        assert_eq!(verdict("MIT OR ISC AND GPL-3.0-only"), Some(true));
        assert_eq!(verdict("(MIT OR ISC) AND GPL-3.0-only"), Some(false));
        assert_eq!(verdict("ISC AND (Apache-2.0 OR GPL-3.0-only) AND MIT"), Some(true));
    }

    #[test]
    fn exception_belongs_to_its_licence() {
        assert_eq!(verdict("Apache-2.0 WITH LLVM-exception"), Some(true));
        assert_eq!(verdict("MIT WITH LLVM-exception"), Some(false));
    }

    #[test]
    fn what_cannot_be_read_is_not_permitted() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "MIT ISC", "OR MIT", "MIT WITH"] {
            assert_eq!(verdict(expression), None, "{expression}");
        }
    }

    #[test]
    fn allow_list_is_read_from_its_own_section() {
        let deny = "[bans]\nallow = [\"no\"]\n[licenses]\nversion = 2\nallow = [\n  \"MIT\", # why \"not\"\n  \"ISC\",\n]\nother = [\"no\"]\n";
        assert_eq!(allowed(deny), ["MIT", "ISC"]);
        assert_eq!(allowed("[licenses]\nallow = [\"MIT\"]\n"), ["MIT"]);
    }

    #[test]
    fn missing_licence_is_a_finding() {
        let json = r#"{"workspace_root":"/","packages":[{"name":"a","version":"1.0.0","source":null,"license":null,"manifest_path":"/a"}]}"#;
        assert_eq!(findings(&serde_json::from_str(json).unwrap(), &[]), ["a 1.0.0 names no licence"]);
    }
}
