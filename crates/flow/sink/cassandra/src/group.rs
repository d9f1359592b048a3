//! Which writes travel together: those of one partition, up to a number of rows and bytes. Rows of several partitions in
//! one request would only give its server the work of several.

use std::collections::HashMap;

/// Places in `items`, each once; `partition` and `bytes` of each.
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
    fn rows_of_a_partition_travel_together_within_bounds() {
        let of = |items: &[(&'static str, usize)]| {
            groups(items.iter().enumerate().map(|(at, (partition, bytes))| (at, *partition, *bytes)), 3, 100)
        };
        assert_eq!(of(&[("a", 1), ("b", 1), ("a", 1)]), [vec![0, 2], vec![1]]);
        assert_eq!(of(&[("a", 1); 4]), [vec![0, 1, 2], vec![3]]);
        assert_eq!(of(&[("a", 60), ("a", 60), ("a", 30)]), [vec![0], vec![1, 2]]);
        assert_eq!(of(&[("a", 500), ("a", 1)]), [vec![0], vec![1]], "one row alone is never too much");
        assert!(of(&[]).is_empty());
    }
}
