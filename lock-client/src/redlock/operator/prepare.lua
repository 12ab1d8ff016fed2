-- Prepares the process that runs this script for the start of a cluster, unless it was admitted to
-- one, or another operator has prepared it meanwhile.
--
-- KEYS  1 the node's membership record.
-- ARGV  1 the run_id that the operator is connected to.
--       2 the node's address among the members.
--       3 cluster.
--       4 the number of the epoch.
--       5 the change that began the epoch.
--       6 the members, with line feeds between them.
--       7 the longest ttl that the cluster grants, in milliseconds.
--       8 the cluster in the record that the operator has read; '' if there was none.
-- returns 1 if the process is prepared, 0 if it was admitted, prepared or restarted meanwhile.

local known = redis.call('HMGET', KEYS[1], 'run_id', 'cluster')
if run_id() ~= ARGV[1] or known[1] or (known[2] or '') ~= ARGV[8] then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call(
    'HSET', KEYS[1], 'prepared', ARGV[1], 'address', ARGV[2], 'cluster', ARGV[3],
    'epoch', ARGV[4], 'change', ARGV[5], 'members', ARGV[6], 'max_ttl_ms', ARGV[7],
    'decided', '1')
return 1
