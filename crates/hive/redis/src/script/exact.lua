-- Takes from all buckets or from none: 1 peek, … limit, key, cost, window's start and end or ''. Keys after the fixed ones:
-- bucket and ledger of each.
local asked, order, left = {}, {}, {}
for i = 2, #ARGV, 5 do
  local at = (i - 2) / 5
  local limit, limit_key, cost_u = ARGV[i], ARGV[i + 1], ARGV[i + 2] * MICRO
  local bucket_key, ledger = KEYS[fixed + 2 * at + 1], KEYS[fixed + 2 * at + 2]
  local rule = definition(limit)
  if not rule then return {'denied', at, 0, 'undefined'} end
  if cost_u > rule.burst_u then return {'denied', at, rule.version, 'too-large'} end
  local bucket = asked[bucket_key]
  if not bucket then
    bucket = stored(bucket_key) or fresh(rule, all)
    asked[bucket_key] = bucket
    order[#order + 1] = {bucket_key, ledger, limit, limit_key}
  end
  count(bucket, rule, all)
  if ARGV[i + 3] ~= '' then
    local start_ms, end_ms = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
    if now < start_ms or now >= end_ms then return {'denied', at, rule.version, 'other-window', now} end
    -- A clock that went back over the start of the window, or nodes with different calendars, must not refill the bucket.
    if start_ms >= bucket.reset_ms then bucket.reset_ms, bucket.pool_u = end_ms, bucket.burst_u end
  end
  if bucket.pool_u < cost_u then
    local retry = ARGV[i + 3] ~= '' and math.max(tonumber(ARGV[i + 4]), bucket.reset_ms) - now or until_ms(bucket, cost_u)
    return {'denied', at, rule.version, 'empty', whole(bucket.pool_u), retry and whole(retry) or '18446744073709551615'}
  end
  if ARGV[1] == '0' then
    bucket.pool_u = bucket.pool_u - cost_u
    bucket.given_u = bucket.given_u + cost_u
  end
  left[#left + 1] = {whole(bucket.pool_u), bucket.version, whole(matters_ms(bucket) or 0)}
end
if ARGV[1] == '0' then
  for _, place in ipairs(order) do save(place[1], place[2], place[3], place[4], asked[place[1]]) end
end
return {'admitted', now, left}
