-- The head of every script: who may answer, and what time it is.

-- Redis 6.2 wants to be told that effects are replicated before it gives its time away; later ones always do so.
if redis.replicate_commands then redis.replicate_commands() end

-- Removes nothing, but a server that only reads refuses it: not even a question is answered by a replica.
local allowed = redis.pcall('HDEL', k_view, '')
if type(allowed) == 'table' and allowed.err then return allowed end

-- Milliseconds since 2020, on this server's clock.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) - 1577836800000

-- A Lua number is a double: only whole numbers below 2^53 are computed here, and none is written with an exponent.
local function whole(number)
  if number >= 18446744073709551615 then return '18446744073709551615' end
  return string.format('%.0f', number)
end
