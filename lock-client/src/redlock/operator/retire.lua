-- Takes the vote of a process away, before its cluster is started anew. Notes that it had one: its
-- counters are those of a voter. So a start that was interrupted can be repeated.
--
-- KEYS  1 the node's record.
-- ARGV  1 the process.
--       2 the roster that it must hold.
-- returns its state.

local process, roster = ARGV[1], ARGV[2]
local held, is_admitted = own(KEYS[1], process)
if run_id() == process and held == roster and is_admitted then
    redis.call('HSET', KEYS[1], 'retired', process .. ' ' .. roster)
    redis.call('HDEL', KEYS[1], 'vote')
end
return state(KEYS[1])
