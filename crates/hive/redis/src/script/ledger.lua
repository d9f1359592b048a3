-- The buckets of a limit, those that issued most first: 1 limit, 2 how many at most. Key after the fixed ones: its ledger.
local ledger, most, from, rows = KEYS[fixed + 1], tonumber(ARGV[2]), 0, {}
while #rows < most do
  local page = redis.call('ZREVRANGE', ledger, from, from + 499)
  for _, limit_key in ipairs(page) do
    local bucket = redis.call('HMGET', prefix .. ':limit:' .. ARGV[1] .. ':' .. limit_key, 'version', 'pool_u', 'pool_ms',
      'issued_u')
    -- A missing bucket has expired on the server because it was full; the next sweep removes it from the ledger.
    if bucket[1] and #rows < most then
      local counted = stored(prefix .. ':limit:' .. ARGV[1] .. ':' .. limit_key)
      local ahead = math.max(0, quotient(now, SLOT_MS) - counted.slot)
      rows[#rows + 1] = {limit_key, bucket, whole(booked_between(counted, counted.pool_ms, now)),
        whole(ahead == 0 and counted.booked_u or ahead == 1 and counted.next_u or 0)}
    end
  end
  if #page < 500 then break end
  from = from + 500
end
return rows
