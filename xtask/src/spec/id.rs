//! The id of a requirement, as documents write it (`OB-7`, `F01`, `I3`) and as test names spell it (`ob_7_…`).

use std::fmt;

use serde::{Serialize, Serializer};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    family: &'static str,
    number: u32,
}

/// The families of ids, and the separator between letters and number.
const FAMILIES: &[(&str, &str)] = &[
    ("CQ", "-"),
    ("F", ""),
    ("HI", "-"),
    ("HV", "-"),
    ("I", ""),
    ("OB", "-"),
    ("PB", "-"),
    ("PL", "-"),
    ("RL", "-"),
    ("SE", "-"),
    ("W", ""),
    ("WF", "-"),
];

impl Id {
    /// `OB-7`, `F01`; `None` for anything else.
    pub fn written(text: &str) -> Option<Self> {
        let letters = text.bytes().take_while(u8::is_ascii_uppercase).count();
        let (family, between) = FAMILIES.iter().find(|(family, _)| *family == &text[..letters])?;
        let digits = text[letters..].strip_prefix(between)?;
        Some(Self { family, number: number(digits)? })
    }

    /// All ids that occur in a text as whole words.
    pub fn all_in(text: &str) -> impl Iterator<Item = Self> {
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
            .filter_map(|word| Self::written(word.trim_matches('-')))
    }

    /// The ids at the beginning of a function's name: `ob_7_key_change`, `ob_44_rl_13_only_rows_read_are_deleted`.
    pub fn all_of_name(name: &str) -> Vec<Self> {
        if name.starts_with("emcee_") {
            return vec![Self { family: "WF", number: 140 }];
        }
        let mut words = name.split('_').flat_map(Self::apart);
        let mut found = Vec::new();
        while let (Some(letters), Some(digits)) = (words.next(), words.next()) {
            let family = FAMILIES.iter().find(|(family, _)| family.to_ascii_lowercase() == letters);
            let (Some((family, _)), Some(number)) = (family, number(digits)) else { break };
            found.push(Self { family, number });
        }
        found
    }
}

impl Id {
    /// Splits `f26` into letters and digits.
    fn apart(word: &str) -> impl Iterator<Item = &str> {
        // `f32` and `f64` are types.
        let is_type = matches!(word, "f32" | "f64" | "i32" | "i64");
        let letters = if is_type { word.len() } else { word.bytes().take_while(u8::is_ascii_lowercase).count() };
        let (letters, digits) = word.split_at(letters);
        [letters, digits].into_iter().filter(|part| !part.is_empty())
    }
}

fn number(digits: &str) -> Option<u32> {
    if digits.is_empty() || digits.len() > 4 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family {
            "F" => write!(f, "F{:02}", self.number),
            "I" | "W" => write!(f, "{}{}", self.family, self.number),
            family => write!(f, "{family}-{}", self.number),
        }
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ids: impl IntoIterator<Item = Id>) -> Vec<String> {
        ids.into_iter().map(|id| id.to_string()).collect()
    }

    #[test]
    fn written_and_shown_alike() {
        for text in ["OB-7", "WF-140", "F01", "I12", "W3", "CQ-16", "PB-38", "HI-11"] {
            assert_eq!(texts(Id::written(text)), [text]);
        }
        for text in ["OB7", "OB-", "XX-1", "F-1", "ob-7", "OB-7a", "UTF-8", "", "-7", "SHA-256"] {
            assert_eq!(Id::written(text), None, "{text}");
        }
    }

    #[test]
    fn names_carry_one_or_several() {
        assert_eq!(texts(Id::all_of_name("ob_7_key_change")), ["OB-7"]);
        assert_eq!(texts(Id::all_of_name("ob_44_rl_13_only_rows_read")), ["OB-44", "RL-13"]);
        assert_eq!(texts(Id::all_of_name("f_2_paused_owner")), ["F02"]);
        assert_eq!(texts(Id::all_of_name("pb_11")), ["PB-11"]);
        assert_eq!(texts(Id::all_of_name("emcee_failing_leaf_fails_run")), ["WF-140"]);
        assert_eq!(texts(Id::all_of_name("wf_137_202_after_commit")), ["WF-137"]);
        for name in ["obtain_7", "f64_keys", "wf_x", "expired_lease", "i_am_here", "f"] {
            assert!(Id::all_of_name(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn running_text_gives_whole_words_only() {
        assert_eq!(
            texts(Id::all_in("OB-7, WF-140 (and F01): I3; not XOB-7 or OB-7x.")),
            ["OB-7", "WF-140", "F01", "I3"]
        );
    }
}
