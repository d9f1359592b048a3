-- Removes the nodes that have expired or were silent for long: 2… removals.
return bury(2)
