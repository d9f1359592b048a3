-- All definitions in force, and the next ones.
return {now, redis.call('HGET', k_view, 'limits') or '0', redis.call('HGETALL', k_limit), redis.call('HGETALL', k_coming)}
