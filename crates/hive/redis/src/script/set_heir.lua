-- Names the successor of a lease: 2 lease, 3 epoch, 4 holder, 5 successor or ''.
if not holds(ARGV[2], ARGV[3], ARGV[4]) then return 'stale' end
if ARGV[5] ~= '' and not may_lead(ARGV[5]) then return 'unfit' end
set_heir(ARGV[2], ARGV[5] ~= '' and ARGV[5])
return 'done'
