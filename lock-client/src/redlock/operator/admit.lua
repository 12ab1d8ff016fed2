-- Admits the process that runs this script to a cluster.
--
-- KEYS  1 the node's membership record.
-- ARGV  1 the run_id that the operator is connected to.
--       2 cluster.
--       3 the number of nodes.
--       4 the longest ttl that the cluster grants, in milliseconds.
-- returns 1 if the process is admitted, 0 if it is another process or belongs to another cluster.

local cluster = redis.call('HGET', KEYS[1], 'cluster')
if run_id() ~= ARGV[1] or (cluster and cluster ~= ARGV[2]) then
    return 0
end
redis.call(
    'HSET', KEYS[1], 'run_id', ARGV[1], 'cluster', ARGV[2], 'nodes', ARGV[3], 'max_ttl_ms', ARGV[4])
redis.call('HDEL', KEYS[1], 'prepared')
return 1
