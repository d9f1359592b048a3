-- The operator accepts the restored state: 2 cause.
if not field('hold') then return 'raced' end
redis.call('HDEL', k_view, 'hold')
redis.call('HSET', k_view, 'lineage_ms', now)
jump('restored', ARGV[2])
return 'done'
