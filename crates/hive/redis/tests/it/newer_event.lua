-- The newest entry of the stream is of a kind that nobody knows. An entry cannot be changed: all are written again.
local entries = redis.call('XRANGE', KEYS[1], '-', '+')
redis.call('DEL', KEYS[1])
for i, entry in ipairs(entries) do
  if i == #entries then entry[2][4] = 'swarmed' end
  redis.call('XADD', KEYS[1], entry[1], unpack(entry[2]))
end
return 1
