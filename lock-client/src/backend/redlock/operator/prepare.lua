-- Prepares the process that runs this for a cluster, unless it was admitted to one.
--
-- KEYS  1 what the node was admitted as
-- ARGV  1 the run_id that is connected to
--       2 cluster
--       3 how many nodes it has
--       4 the longest ttl that it grants, in milliseconds
-- answers 1 if it is prepared, 0 if it was admitted, or started anew, meanwhile

if run_id() ~= ARGV[1] or redis.call('HEXISTS', KEYS[1], 'run_id') == 1 then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call(
    'HSET', KEYS[1], 'prepared', ARGV[1], 'cluster', ARGV[2], 'nodes', ARGV[3], 'max_ttl_ms', ARGV[4])
return 1
