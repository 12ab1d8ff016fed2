-- Notes that the change which began a node's epoch is decided.
--
-- KEYS  1 the node's membership record.
-- ARGV  1 the run_id that has accepted the change.
--       2 the change.
-- returns 1 if it is noted; 0 if it is another process, or takes part in another epoch.

local known = redis.call('HMGET', KEYS[1], 'run_id', 'change')
if run_id() ~= ARGV[1] or known[1] ~= ARGV[1] or known[2] ~= ARGV[2] then
    return 0
end
redis.call('HSET', KEYS[1], 'decided', '1')
return 1
