-- Has the process that runs this take over the vote of one that was admitted before it.
--
-- KEYS  1 what the node was admitted as
-- ARGV  1 cluster
--       2 the run_id that was admitted
-- answers 1 if it is admitted now, 0 if another was admitted meanwhile

local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local admitted = redis.call('HMGET', KEYS[1], 'cluster', 'run_id')
if admitted[1] ~= ARGV[1] then
    return 0
end
if admitted[2] == ARGV[2] then
    redis.call('HSET', KEYS[1], 'run_id', run_id)
    return 1
end
-- Somebody else may have been faster.
return admitted[2] == run_id and 1 or 0
