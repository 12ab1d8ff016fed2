-- Prepares the process that runs this script for a cluster, unless it was admitted to one, or
-- another operator has prepared it meanwhile.
--
-- KEYS  1 the node's membership record.
-- ARGV  1 the run_id that the operator is connected to.
--       2 cluster.
--       3 the number of nodes.
--       4 the longest ttl that the cluster grants, in milliseconds.
--       5 the cluster in the record that the operator has read; '' if there was none.
-- returns 1 if the process is prepared, 0 if it was admitted, prepared or restarted meanwhile.

local known = redis.call('HMGET', KEYS[1], 'run_id', 'cluster')
if run_id() ~= ARGV[1] or known[1] or (known[2] or '') ~= ARGV[5] then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call(
    'HSET', KEYS[1], 'prepared', ARGV[1], 'cluster', ARGV[2], 'nodes', ARGV[3],
    'max_ttl_ms', ARGV[4])
return 1
