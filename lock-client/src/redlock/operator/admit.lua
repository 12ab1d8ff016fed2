-- Gives a process its vote for the roster that it holds, unless it has given that vote up.
--
-- KEYS  1 the node's record.
-- ARGV  1 the process.
--       2 the roster that it must hold.
-- returns its state.

local process, roster = ARGV[1], ARGV[2]
local is_retired = redis.call('HGET', KEYS[1], 'retired') == process .. ' ' .. roster
if run_id() == process and own(KEYS[1], process) == roster and not is_retired then
    redis.call('HSET', KEYS[1], 'vote', vote_of(roster, process))
    redis.call('HDEL', KEYS[1], 'retired')
end
return state(KEYS[1])
