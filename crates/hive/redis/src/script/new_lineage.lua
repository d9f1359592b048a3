-- Records the lineage of this server: 2 the recorded lineage or '', 3 the one that was found.
if (field('lineage') or '') ~= ARGV[2] or server() ~= ARGV[3] then return 'raced' end
make_view()
redis.call('HSET', k_view, 'lineage', server(), 'lineage_ms', now)
jump('lineage', ARGV[3])
return 'done'
