-- Gives permits back: … limit, key, cost, end of the window or ''. Keys after the fixed ones: bucket and ledger of each.
for i = 1, #ARGV, 4 do
  local bucket_key, ledger = KEYS[fixed + (i - 1) / 2 + 1], KEYS[fixed + (i - 1) / 2 + 2]
  local bucket = stored(bucket_key)
  if bucket and (ARGV[i + 3] == '' or tonumber(ARGV[i + 3]) == bucket.reset_ms) then
    local issued_u = tonumber(redis.call('HGET', bucket_key, 'issued_u') or 0)
    local back_u = math.max(0, math.min(ARGV[i + 2] * MICRO, bucket.burst_u - bucket.pool_u, issued_u))
    bucket.pool_u, bucket.given_u = bucket.pool_u + back_u, 0 - back_u
    save(bucket_key, ledger, ARGV[i], ARGV[i + 1], bucket)
  end
end
return 1
