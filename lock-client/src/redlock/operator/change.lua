-- Changes the record of a process, if it is exactly as the operator has seen it. Each request of an operator
-- is such a change. So one that comes late, or twice, or for another process, does no harm.
--
-- KEYS  1 the node's record: `roster`, the whole text; `vote`, as in vote.lua; and `retired`, a process
--         that has given up its vote, or `-`, and the roster that was there before.
-- ARGV  1 the process.
--       2 to 4 the three fields, as they were seen; '' for none.
--       5 to 7 the fields from now on.
--       8 a pattern of the locks to delete, which an earlier process may have granted; or ''.
-- returns the process and the three fields.

local names = {'roster', 'vote', 'retired'}
local is_as_seen = run_id() == ARGV[1]
for i, own in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do
    is_as_seen = is_as_seen and (own or '') == ARGV[1 + i]
end
if is_as_seen then
    -- First, because nothing may change if the user must not find the locks.
    for _, lock in ipairs(ARGV[8] == '' and {} or redis.call('KEYS', ARGV[8])) do
        redis.call('DEL', lock)
    end
    for i, name in ipairs(names) do
        if ARGV[4 + i] == '' then
            redis.call('HDEL', KEYS[1], name)
        else
            redis.call('HSET', KEYS[1], name, ARGV[4 + i])
        end
    end
end
return {run_id(), redis.call('HMGET', KEYS[1], unpack(names))}
