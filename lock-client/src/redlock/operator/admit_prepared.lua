-- Admits the process that runs this script, if it was prepared for a cluster. Another process may
-- have been prepared, and a snapshot may have restored the record of that.
--
-- KEYS  1 the node's membership record.
-- ARGV  1 the run_id that the operator is connected to.
--       2 cluster.
-- returns 1 if the process is admitted, 0 if it was not prepared for this cluster.

local known = redis.call('HMGET', KEYS[1], 'prepared', 'cluster', 'change')
if run_id() ~= ARGV[1] or known[1] ~= ARGV[1] or known[2] ~= ARGV[2] then
    return 0
end
redis.call('HSET', KEYS[1], 'vote', known[3] .. ' ' .. ARGV[1], 'run_id', ARGV[1])
redis.call('HDEL', KEYS[1], 'prepared')
return 1
