-- Records which server this is: 2 what was recorded or '', 3 what was found.
if (field('lineage') or '') ~= ARGV[2] or server() ~= ARGV[3] then return 'raced' end
make_view()
redis.call('HSET', k_view, 'lineage', server(), 'lineage_ms', now)
jump('lineage', ARGV[3])
return 'done'
