-- Records that a chore of this lease was missed: 2 lease, 3 epoch, 4 holder, 5 cause.
if not holds(ARGV[2], ARGV[3], ARGV[4]) then return 'stale' end
event('missed', ARGV[4], ARGV[2], ARGV[3], ARGV[5])
return 'done'
