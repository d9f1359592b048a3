-- Deletes a node's row: 2 id.
if expires(ARGV[2]) then remove(ARGV[2], 'left', '') end
return 1
