-- Transfers the vote of the admitted process to the process that runs this script, if nothing that
-- the admitted process had answered was lost. If something may have been lost, no process takes the
-- vote over from now on.
--
-- KEYS  1 the node's membership record.
-- ARGV  1 cluster.
--       2 the admitted run_id.
--       3 1 if nothing was lost, 0 if something may have been.
-- returns 1 if the process may vote now, else 0.

local admitted = redis.call('HMGET', KEYS[1], 'cluster', 'run_id', 'durable')
if admitted[1] ~= ARGV[1] then
    return 0
end
if admitted[2] == ARGV[2] and admitted[3] == '1' then
    if ARGV[3] ~= '1' then
        redis.call('HSET', KEYS[1], 'durable', '0')
        return 0
    end
    redis.call('HSET', KEYS[1], 'run_id', run_id())
    return 1
end
-- Another client may have transferred the vote already.
return admitted[2] == run_id() and 1 or 0
