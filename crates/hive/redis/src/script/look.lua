-- Reads leases in the order of the request, and makes the missing ones: 2… names.
for i = 2, #ARGV do
  if redis.call('HSETNX', k_epoch, ARGV[i], 0) == 1 then
    redis.call('HSET', k_since, ARGV[i], now)
    redis.call('HSET', k_cause, ARGV[i], '')
  end
end
local rows = {}
for i = 2, #ARGV do rows[#rows + 1] = lease_row(ARGV[i]) end
return {now, rows}
