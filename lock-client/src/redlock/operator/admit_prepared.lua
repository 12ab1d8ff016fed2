-- Admits the process that runs this, if it was prepared for a cluster. A snapshot may have brought back
-- that another one was.
--
-- KEYS  1 what the node was admitted as
-- ARGV  1 the run_id that is connected to
--       2 cluster
--       3 1 if it has every write on disk before it is answered, 0 if not
-- answers 1 if it is admitted, 0 if it is not prepared for this

local known = redis.call('HMGET', KEYS[1], 'prepared', 'cluster')
if run_id() ~= ARGV[1] or known[1] ~= ARGV[1] or known[2] ~= ARGV[2] then
    return 0
end
redis.call('HSET', KEYS[1], 'run_id', ARGV[1], 'durable', ARGV[3])
redis.call('HDEL', KEYS[1], 'prepared')
return 1
