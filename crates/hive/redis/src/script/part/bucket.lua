-- The bucket of a limit, in integers: the same arithmetic as `honeyflow_hive::bucket`.
--
-- `issued_u` counts forever and passes 2^53 in a day of heavy use, so only commands of the server add to it, never Lua.

local MICRO = 1000000
-- A bucket that has been full for this long expires on the server, if no sweep deletes it before.
local KEPT_MS = 600000
local LONGEST_MS = 10000000000000

local function quotient(a, b)
  return (a - math.fmod(a, b)) / b
end

local function rounded_up(a, b)
  local rest = math.fmod(a, b)
  return (a - rest) / b + (rest > 0 and 1 or 0)
end

local function definition(limit)
  local in_force = redis.call('HGET', k_limit, limit)
  if not in_force then return nil end
  local function read(text)
    local version, rate_u, period_ms, burst_u, effective_ms = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
    return {version = tonumber(version), rate_u = tonumber(rate_u), period_ms = tonumber(period_ms),
      burst_u = tonumber(burst_u), effective_ms = tonumber(effective_ms)}
  end
  local to_come = redis.call('HGET', k_coming, limit)
  if to_come then
    local coming = read(to_come)
    if coming.effective_ms <= now then return coming end
  end
  return read(in_force)
end

local FIELDS = {'version', 'rate_u', 'period_ms', 'burst_u', 'pool_u', 'pool_ms', 'reset_ms',
  'slot', 'booked_u', 'next_u', 'level_u', 'asked_u', 'weight', 'cut_weight'}

local function stored(key)
  local values = redis.call('HMGET', key, unpack(FIELDS))
  if not values[1] then return nil end
  local bucket = {given_u = 0}
  for i, name in ipairs(FIELDS) do bucket[name] = tonumber(values[i] or 0) end
  return bucket
end

local function half(burst_u)
  return math.floor(burst_u / 2)
end

local function all(burst_u)
  return burst_u
end

local function flow_ms(rule, amount_u)
  if rule.rate_u == 0 then return nil end
  return rounded_up(amount_u, rule.rate_u) * rule.period_ms
end

-- A second of hive time, and how much of it may be reserved.
local SLOT_MS = 1000
local ASKED_MAX = 4503599627370496

local function bookable_u(rule)
  local books = rule.period_ms == 1 and rule.rate_u >= 1 and rule.rate_u <= 4000000000000
    and rule.burst_u >= 80 * MICRO and half(rule.burst_u) <= rule.rate_u * SLOT_MS
  return books and rule.rate_u * 970 or 0
end

-- A new bucket: full, unless the store may have lost what it gave a moment ago or what was reserved.
local function fresh(rule, cap)
  local lineage_ms = tonumber(redis.call('HGET', k_view, 'lineage_ms') or 0)
  local life_ms = flow_ms(rule, half(rule.burst_u)) or 0
  local forgot = lineage_ms > 0 and now < lineage_ms + life_ms
  -- If the clock went back since the lineage began, the two seconds begin with the next one.
  local now_slot, last = quotient(now, SLOT_MS), lineage_ms > 0 and quotient(lineage_ms, SLOT_MS) + 1 or -1
  local slot = math.max(now_slot, math.min(last - 1, now_slot + 1))
  local unknown_u = bookable_u(rule)
  return {version = rule.version, rate_u = rule.rate_u, period_ms = rule.period_ms, burst_u = rule.burst_u,
    pool_u = forgot and 0 or cap(rule.burst_u), pool_ms = now, reset_ms = 0, given_u = 0, is_new = true,
    slot = slot, booked_u = slot <= last and unknown_u or 0, next_u = slot + 1 <= last and unknown_u or 0,
    level_u = 0, asked_u = 0, weight = 0, cut_weight = 0}
end

-- What flows to nodes with reservations. A time before the present second counts with the rate of the present second.
local function booked_between(bucket, from_ms, to_ms)
  local turns_ms = (bucket.slot + 1) * SLOT_MS
  local now_ms = math.max(0, math.min(to_ms, turns_ms) - from_ms)
  local next_ms = math.max(0, math.min(to_ms, turns_ms + SLOT_MS) - math.max(from_ms, turns_ms))
  return quotient(bucket.booked_u, SLOT_MS) * now_ms + quotient(bucket.next_u, SLOT_MS) * next_ms
end

-- Whether the clock went back and the bucket's second has not begun again.
local function is_ahead(bucket)
  return quotient(now, SLOT_MS) < bucket.slot
end

local function go_back(bucket)
  local slot, most_u = quotient(now, SLOT_MS), math.max(bucket.booked_u, bucket.next_u)
  if slot + 1 < bucket.slot then
    bucket.slot, bucket.next_u, bucket.level_u = slot + 1, most_u, 0
    bucket.asked_u, bucket.weight, bucket.cut_weight = 0, 0, 0
  end
  bucket.booked_u = most_u
end

local function next_level(bucket, most_u)
  if bucket.weight == 0 or (bucket.cut_weight == 0 and bucket.asked_u <= most_u) then return 0 end
  local equal_u = quotient(most_u, bucket.weight)
  if bucket.cut_weight == 0 then return equal_u end
  local stepped_u
  if bucket.asked_u <= most_u then
    stepped_u = bucket.level_u + quotient(most_u - bucket.asked_u, bucket.cut_weight)
  else
    stepped_u = bucket.level_u - rounded_up(bucket.asked_u - most_u, bucket.cut_weight)
  end
  return math.max(stepped_u, equal_u)
end

-- Moves the reservations on if another second has begun.
local function turn(bucket, most_u)
  local slot = quotient(now, SLOT_MS)
  if slot <= bucket.slot then return end
  local now_u, level_u = 0, 0
  if slot == bucket.slot + 1 then now_u, level_u = bucket.next_u, next_level(bucket, most_u) end
  bucket.slot, bucket.booked_u, bucket.next_u, bucket.level_u = slot, now_u, 0, level_u
  bucket.asked_u, bucket.weight, bucket.cut_weight = 0, 0, 0
end

-- Reserves whole permits of the next second; none while that second passes for the second time.
local function book(bucket, want, weight)
  if is_ahead(bucket) then return 0 end
  local bookable, want_u = bookable_u(bucket), want * MICRO
  local most_u = bucket.level_u == 0 and bookable or math.min(bucket.level_u * weight, bookable)
  local fair_u = math.min(want_u, most_u)
  bucket.asked_u = math.min(bucket.asked_u + fair_u, ASKED_MAX)
  bucket.weight = bucket.weight + weight
  if want_u > most_u then bucket.cut_weight = bucket.cut_weight + weight end
  local booked = quotient(math.min(fair_u, math.max(0, bookable - bucket.next_u)), MICRO)
  bucket.next_u = bucket.next_u + booked * MICRO
  return booked
end

local function refill(bucket, cap_u, at_ms)
  if bucket.rate_u == 0 or bucket.period_ms == 0 then
    bucket.pool_ms = at_ms
    return
  end
  local periods = quotient(math.max(0, at_ms - bucket.pool_ms), bucket.period_ms)
  local until_ms = bucket.pool_ms + periods * bucket.period_ms
  local flowed_u = booked_between(bucket, bucket.pool_ms, until_ms)
  bucket.given_u = bucket.given_u + flowed_u
  local free_u = math.max(0, periods * bucket.rate_u - flowed_u)
  local filled_u = bucket.pool_u + free_u
  if filled_u >= cap_u then
    bucket.pool_u, bucket.pool_ms = cap_u, at_ms
  else
    bucket.pool_u, bucket.pool_ms = filled_u, until_ms
  end
end

-- Computes the level now. If the definition changed, the old rule applies until the new one came into force.
local function count(bucket, rule, cap)
  if now < bucket.pool_ms or is_ahead(bucket) then go_back(bucket) end
  bucket.pool_ms = math.min(bucket.pool_ms, now)
  if bucket.version ~= rule.version then
    local since_ms = math.min(math.max(rule.effective_ms, bucket.pool_ms), now)
    local old_rate_u, old_cap_u = bucket.rate_u, cap(bucket.burst_u)
    refill(bucket, old_cap_u, since_ms)
    bucket.version, bucket.rate_u, bucket.period_ms, bucket.burst_u = rule.version, rule.rate_u, rule.period_ms, rule.burst_u
    local new_cap_u = cap(bucket.burst_u)
    -- If nothing refills (rate 0), what was used of a window stays used, even if the size of the window changed.
    if old_rate_u == 0 and bucket.rate_u == 0 then
      bucket.pool_u = math.max(0, new_cap_u - math.max(0, old_cap_u - bucket.pool_u))
    end
    bucket.pool_u, bucket.pool_ms = math.min(bucket.pool_u, new_cap_u), since_ms
  end
  refill(bucket, cap(bucket.burst_u), now)
  turn(bucket, bookable_u(bucket))
end

-- How long until the bucket holds `amount_u`; nil: it never does by itself.
local function until_ms(bucket, amount_u)
  local missing_u = math.max(0, amount_u - bucket.pool_u)
  local flow = missing_u == 0 and 0 or flow_ms(bucket, missing_u)
  return flow and math.max(0, bucket.pool_ms + flow - now)
end

-- How long the bucket differs from a new one.
local function matters_ms(bucket)
  if bucket.reset_ms > 0 then return math.max(0, bucket.reset_ms - now) end
  return until_ms(bucket, bucket.burst_u)
end

local function save(key, ledger, limit, limit_key, bucket)
  local values = {}
  for _, name in ipairs(FIELDS) do
    values[#values + 1] = name
    values[#values + 1] = whole(bucket[name])
  end
  redis.call('HSET', key, unpack(values))
  -- The total ever issued; it stops at the largest 63-bit number.
  local issued_u = redis.pcall('HINCRBY', key, 'issued_u', whole(bucket.given_u))
  if type(issued_u) == 'number' then redis.call('ZADD', ledger, whole(issued_u), limit_key) end
  local left_ms = matters_ms(bucket)
  if left_ms and left_ms < LONGEST_MS then
    redis.call('PEXPIRE', key, whole(left_ms + KEPT_MS))
    redis.call('ZADD', k_full, whole(now + left_ms), limit_key .. limit)
  else
    redis.call('PERSIST', key)
    redis.call('ZADD', k_full, '+inf', limit_key .. limit)
  end
end
