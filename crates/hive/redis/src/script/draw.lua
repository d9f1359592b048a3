-- Independent draws: … limit, key, want, need, to be reserved (or 0), weight. Keys after the fixed ones: bucket and ledger of
-- each.
local drawn = {}
for i = 1, #ARGV, 6 do
  local limit, limit_key, want, need = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local to_book, weight = tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
  local bucket_key, ledger = KEYS[fixed + (i - 1) / 3 + 1], KEYS[fixed + (i - 1) / 3 + 2]
  local rule = definition(limit)
  if not rule then
    drawn[#drawn + 1] = false
  else
    local bucket = stored(bucket_key) or fresh(rule, half)
    count(bucket, rule, half)
    local pool, offered = quotient(bucket.pool_u, MICRO), math.min(want, quotient(math.floor(bucket.pool_u / 2), MICRO))
    local granted = need <= offered and offered or need <= pool and need or 0
    bucket.given_u = bucket.given_u + granted * MICRO
    bucket.pool_u = bucket.pool_u - granted * MICRO
    local wanted_u, retry = math.max(need, 1) * MICRO, nil
    if granted == 0 and wanted_u <= half(bucket.burst_u) then retry = until_ms(bucket, wanted_u) end
    local booked, begins = 0, 0
    if weight > 0 then booked, begins = book(bucket, to_book, weight), SLOT_MS - math.fmod(now, SLOT_MS) end
    save(bucket_key, ledger, limit, limit_key, bucket)
    drawn[#drawn + 1] = {whole(granted), whole(bucket.pool_u), bucket.version, retry and whole(retry) or false,
      whole(booked), whole(begins)}
  end
end
return {now, drawn}
