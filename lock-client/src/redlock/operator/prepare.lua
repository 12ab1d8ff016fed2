-- Prepares the process that runs this for a cluster, unless it was admitted to one, or somebody else has
-- prepared it meanwhile.
--
-- KEYS  1 what the node was admitted as
-- ARGV  1 the run_id that is connected to
--       2 cluster
--       3 how many nodes it has
--       4 the longest ttl that it grants, in milliseconds
--       5 the cluster that it was seen to be prepared for; '' if for none
-- answers 1 if it is prepared, 0 if it was admitted, prepared, or started anew, meanwhile

local known = redis.call('HMGET', KEYS[1], 'run_id', 'cluster')
if run_id() ~= ARGV[1] or known[1] or (known[2] or '') ~= ARGV[5] then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call(
    'HSET', KEYS[1], 'prepared', ARGV[1], 'cluster', ARGV[2], 'nodes', ARGV[3], 'max_ttl_ms', ARGV[4])
return 1
