-- The newest events first: 2 lease or '', 3 up to which instant or '', 4 how many at most.
local found, most, before = {}, tonumber(ARGV[4]), '+'
while #found < most do
  local page = redis.call('XREVRANGE', k_event, before, '-', 'COUNT', 500)
  for _, entry in ipairs(page) do
    local wanted = (ARGV[2] == '' or entry[2][8] == ARGV[2]) and (ARGV[3] == '' or tonumber(entry[2][2]) <= tonumber(ARGV[3]))
    if wanted and #found < most then found[#found + 1] = entry end
  end
  if #page < 500 then break end
  before = '(' .. page[#page][1]
end
return found
