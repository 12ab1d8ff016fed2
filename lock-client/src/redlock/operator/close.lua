-- Exchanges the roster of a process for that of the next term. From then on, it rejects all votes for
-- the roster before. If it was admitted, it votes for the new one.
--
-- KEYS  1 the node's record.
-- ARGV  1 the process.
--       2 the roster that it must hold.
--       3 the roster of the next term.
-- returns its state.

local process, from, to = ARGV[1], ARGV[2], ARGV[3]
local held, is_admitted = own(KEYS[1], process)
if run_id() == process and held == from and names(to, process) then
    redis.call('HSET', KEYS[1], 'roster', to)
    if is_admitted then
        redis.call('HSET', KEYS[1], 'vote', vote_of(to, process))
    else
        redis.call('HDEL', KEYS[1], 'vote')
    end
end
return state(KEYS[1])
