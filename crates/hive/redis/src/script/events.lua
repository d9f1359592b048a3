-- The events after a version, or the whole view if events are missing: 2 version, 3 how many at most.
local due = number('version') - ARGV[2]
if due < 0 or due > tonumber(ARGV[3]) then return whole_view() end
local entries = {}
if due > 0 then
  entries = redis.call('XRANGE', k_event, '(' .. ARGV[2] .. '-0', '+', 'COUNT', due + 1)
end
-- Versions are unique and rise by one: if the number of events is right, none is missing.
if #entries ~= due then return whole_view() end
local nodes, leases, seen_nodes, seen_leases = {}, {}, {}, {}
for _, entry in ipairs(entries) do
  local node, lease = entry[2][6], entry[2][8]
  if node ~= '' and not seen_nodes[node] then
    seen_nodes[node] = true
    local row = node_row(node)
    if row then nodes[#nodes + 1] = row end
  end
  if lease ~= '' and not seen_leases[lease] then
    seen_leases[lease] = true
    local row = lease_row(lease)
    if row then leases[#leases + 1] = row end
  end
end
return {'events', head(), entries, nodes, leases}
