//! Groups the writes of one partition into requests, up to a number of rows and bytes. Rows of several partitions in
//! one request would make one server do the work of several.

use std::collections::HashMap;

/// Returns groups of indices; each index occurs once. Each item is its index, its partition and its size in bytes.
pub fn groups<P: Eq + std::hash::Hash>(
    items: impl Iterator<Item = (usize, P, usize)>,
    rows_max: usize,
    bytes_max: usize,
) -> Vec<Vec<usize>> {
    let mut open: HashMap<P, (usize, usize)> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, partition, bytes) in items {
        let (group, filled) = open.entry(partition).or_insert_with(|| {
            groups.push(Vec::new());
            (groups.len() - 1, 0)
        });
        let full = groups[*group].len() >= rows_max || *filled + bytes > bytes_max;
        if full && !groups[*group].is_empty() {
            groups.push(Vec::new());
            (*group, *filled) = (groups.len() - 1, 0);
        }
        groups[*group].push(at);
        *filled += bytes;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_partition_share_a_request_within_limits() {
        let group = |items: &[(&'static str, usize)]| {
            groups(items.iter().enumerate().map(|(at, (partition, bytes))| (at, *partition, *bytes)), 3, 100)
        };
        assert_eq!(group(&[("a", 1), ("b", 1), ("a", 1)]), [vec![0, 2], vec![1]]);
        assert_eq!(group(&[("a", 1); 4]), [vec![0, 1, 2], vec![3]]);
        assert_eq!(group(&[("a", 60), ("a", 60), ("a", 30)]), [vec![0], vec![1, 2]]);
        assert_eq!(group(&[("a", 500), ("a", 1)]), [vec![0], vec![1]], "a single row is never too large");
        assert!(group(&[]).is_empty());
    }
}
