-- A person says that what was restored is right: 2 why.
if not field('hold') then return 'raced' end
redis.call('HDEL', k_view, 'hold')
redis.call('HSET', k_view, 'lineage_ms', now)
jump('restored', ARGV[2])
return 'done'
