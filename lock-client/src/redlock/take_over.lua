-- Has the process that runs this take over the vote of one that was admitted before it, if it came up
-- with all that that one had answered. If it did not, nobody takes it over from then on.
--
-- KEYS  1 what the node was admitted as
-- ARGV  1 cluster
--       2 the run_id that was admitted
--       3 1 if nothing was lost, 0 if something may have been
-- answers 1 if it is admitted now, 0 if not

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
-- Somebody else may have been faster.
return admitted[2] == run_id() and 1 or 0
