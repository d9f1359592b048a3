//! Finds the topological order of the steps, or their cycles. Without recursion: a chain may have 10,000 steps.

/// Returns the steps with needs first; or, as an error, the steps that are in a cycle or depend on one.
pub(super) fn topological(needs: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut dependents = vec![Vec::new(); needs.len()];
    let mut waiting = vec![0_usize; needs.len()];
    for (step, needs) in needs.iter().enumerate() {
        waiting[step] = needs.len();
        for need in needs {
            dependents[*need].push(step);
        }
    }
    let mut order: Vec<usize> = (0..needs.len()).filter(|step| waiting[*step] == 0).collect();
    let mut at = 0;
    while let Some(step) = order.get(at).copied() {
        at += 1;
        for dependent in &dependents[step] {
            waiting[*dependent] -= 1;
            if waiting[*dependent] == 0 {
                order.push(*dependent);
            }
        }
    }
    if order.len() == needs.len() {
        return Ok(order);
    }
    Err((0..needs.len()).filter(|step| waiting[*step] > 0).collect())
}

/// Returns the cycles among the steps left over, each starting at its smallest step, in the direction of execution.
///
/// From every step left over, following needs leads into a cycle: it always has a need that is left over too.
pub(super) fn cycles(needs: &[Vec<usize>], left_over: &[usize]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let mut is_left = vec![false; needs.len()];
    for step in left_over {
        is_left[*step] = true;
    }
    let mut walk_of = vec![UNSEEN; needs.len()];
    let mut cycles = Vec::new();
    for (walk, start) in left_over.iter().enumerate() {
        let mut path = Vec::new();
        let mut step = *start;
        while walk_of[step] == UNSEEN {
            walk_of[step] = walk;
            path.push(step);
            let Some(next) = needs[step].iter().copied().find(|need| is_left[*need]) else { break };
            step = next;
        }
        if walk_of[step] != walk {
            continue;
        }
        if let Some(from) = path.iter().position(|on_path| *on_path == step) {
            let mut cycle = path.split_off(from);
            cycle.reverse();
            let smallest = cycle.iter().enumerate().min_by_key(|(_, step)| **step).map_or(0, |(n, _)| n);
            cycle.rotate_left(smallest);
            cycles.push(cycle);
        }
    }
    cycles
}
