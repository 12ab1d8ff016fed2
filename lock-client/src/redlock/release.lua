-- Frees the lock on this node if the holder has it, notifies the waiters, and raises the counter.
-- With equal counters on all nodes, the next grant takes one round trip. Here is the usual case;
-- what follows in release_else.lua is for all others.
--
-- It grants no lock and lowers no counter. So it needs no vote.
--
-- KEYS  1 the lock, as in grant.lua.
--       2 the counter.
-- ARGV  1 the lock after a grant of the token: "<token less 1> <holder>".
--       2 holder.
--       3 the token that the counter is raised to; 0 if it is unknown.
--       4 the channel that notifies waiters.
-- returns 1 if the holder had the lock, else 0.

-- Usually the holder has the lock as it was granted, and the counter is the token. This defines no
-- functions, because Lua takes longer for those than for the rest.
local lock = redis.call('GET', KEYS[1])
if lock == ARGV[1] and redis.call('GET', KEYS[2]) == ARGV[3] then
    redis.call('PUBLISH', ARGV[4], '')
    return redis.call('DEL', KEYS[1])
end

