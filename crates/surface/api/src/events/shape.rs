//! Checks the depth and the number of members of a JSON text without allocating, so that a parser that recurses or
//! allocates only gets bounded input.

use crate::{answer::Refusal, codes};

pub(super) fn check(text: &str, depth_max: usize, members_max: usize) -> Result<(), Refusal> {
    let (mut depth, mut members) = (0_usize, 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                members += 1;
                if depth > depth_max {
                    let message = format!("the JSON is nested more than {depth_max} deep");
                    return Err(Refusal::bad_request(codes::refusal::TOO_DEEP, message));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => members += 1,
            _ => {}
        }
        if members > members_max {
            let message = format!("the JSON has more than {members_max} members");
            return Err(Refusal::bad_request(codes::refusal::TOO_MANY_MEMBERS, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn se_18_depth_and_members_are_bounded() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(check(&nested(64), 64, 100_000).is_ok());
        assert_eq!(check(&nested(65), 64, 100_000).unwrap_err().code, "too-deep");
        assert_eq!(check(&nested(64_000), 64, 100_000).unwrap_err().code, "too-deep");
        let list = |members: usize| format!("[{}1]", "1,".repeat(members - 1));
        assert!(check(&list(100_000), 64, 100_000).is_ok());
        assert_eq!(check(&list(100_001), 64, 100_000).unwrap_err().code, "too-many-members");
        assert!(check(r#"{"a":"[[[[,,,,\"[[\\"}"#, 1, 2).is_ok(), "strings do not count");
    }
}
