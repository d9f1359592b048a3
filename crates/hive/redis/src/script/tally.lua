-- Counts the nodes and changes nothing.
return {'counted', now, tally(), field('epoch') or '0', field('counted_ms') or '0', 0, {}}
