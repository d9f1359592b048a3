-- The head of every script: refuses replicas, and reads the time.

-- Redis 6.2 gives the time only if the script declares that its effects are replicated; later versions always replicate them.
if redis.replicate_commands then redis.replicate_commands() end

-- This removes nothing, but a read-only server refuses it: so a replica does not even answer reads.
local allowed = redis.pcall('HDEL', k_view, '')
if type(allowed) == 'table' and allowed.err then return allowed end

-- Milliseconds since 2020, on this server's clock.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) - 1577836800000

-- A Lua number is a double: scripts compute only with integers below 2^53, and write no number with an exponent.
local function whole(number)
  if number >= 18446744073709551615 then return '18446744073709551615' end
  return string.format('%.0f', number)
end
