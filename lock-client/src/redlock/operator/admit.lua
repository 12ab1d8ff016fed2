-- Admits the process that runs this to a cluster.
--
-- KEYS  1 what the node was admitted as
-- ARGV  1 the run_id that is connected to
--       2 cluster
--       3 how many nodes it has
--       4 the longest ttl that it grants, in milliseconds
--       5 1 if it has every write on disk before it is answered, 0 if not
-- answers 1 if it is admitted, 0 if it is another process, or belongs to another cluster

local cluster = redis.call('HGET', KEYS[1], 'cluster')
if run_id() ~= ARGV[1] or (cluster and cluster ~= ARGV[2]) then
    return 0
end
redis.call(
    'HSET', KEYS[1], 'run_id', ARGV[1], 'cluster', ARGV[2], 'nodes', ARGV[3], 'max_ttl_ms', ARGV[4],
    'durable', ARGV[5])
redis.call('HDEL', KEYS[1], 'prepared')
return 1
