//! Checks that a server is suitable for a hive, by what its `INFO` reports.

use honeyflow_runtime::Failure;

use crate::codes;

/// The oldest version whose stream and sorted-set commands the scripts can use.
const OLDEST: (u32, u32) = (6, 2);

/// Refuses an unsuitable server. `info` contains the sections `server` and `memory`.
pub(crate) fn judge(info: &str, place: &str) -> Result<(), Failure> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    if let Some(version) = field("redis_version")
        && number(version).is_some_and(|number| number < OLDEST)
    {
        let said = format!("the server at {place} is Redis {version}; a hive needs Redis 6.2, or Valkey");
        return Err(Failure::fatal(codes::SERVER_TOO_OLD, said));
    }
    match field("maxmemory_policy") {
        // Some hosted servers do not report it; they are accepted.
        None | Some("noeviction") => Ok(()),
        Some(policy) => {
            let said = format!(
                "the server at {place} evicts keys, also leases, when its memory is full (maxmemory-policy {policy}); set \
                 maxmemory-policy to noeviction, or use a separate server for the hive"
            );
            Err(Failure::fatal(codes::EVICTING_SERVER, said))
        }
    }
}

fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(str::parse);
    match (parts.next()?, parts.next()?) {
        (Ok(major), Ok(minor)) => Some((major, minor)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hv_40_a_server_that_evicts_keys_is_refused() {
        let judged = |policy: &str| judge(&format!("# Memory\r\nmaxmemory_policy:{policy}\r\n"), "there:1");
        assert_eq!(judged("noeviction"), Ok(()));
        for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
            let failure = judged(policy).unwrap_err();
            assert_eq!(failure.code, "evicting-server");
            assert!(failure.message.contains(policy) && failure.message.contains("noeviction"), "{failure}");
        }
    }

    #[test]
    fn hv_1_a_server_that_is_too_old_is_refused() {
        for (version, old) in [("6.0.16", true), ("5.0.14", true), ("6.2.0", false), ("7.2.4", false), ("x", false)] {
            let judged = judge(&format!("# Server\r\nredis_version:{version}\r\n"), "there:1");
            assert_eq!(judged.is_err(), old, "{version}: {judged:?}");
        }
        assert_eq!(judge("", "there:1"), Ok(()));
    }
}
