-- Frees the lock on this node if the holder has it, notifies the waiters, and raises the counter.
-- With equal counters on all nodes, the next grant takes one round trip. Here is the usual case;
-- what follows in release_else.lua is for all others.
--
-- It grants no lock and lowers no counter. So it needs no vote.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <floor>".
--       2 the counter.
-- ARGV  1 holder.
--       2 the token that the counter is raised to; 0 if it is unknown.
--       3 the channel that notifies waiters.
-- returns 1 if the holder had the lock, else 0.

-- Usually the holder has the lock, and the counter is the token. This defines no functions, because
-- Lua takes longer for those than for the rest.
local holder = string.match(redis.call('GET', KEYS[1]) or '', '^%d+ %d+ (%S+)')
if holder == ARGV[1] and redis.call('GET', KEYS[2]) == ARGV[2] then
    redis.call('PUBLISH', ARGV[3], '')
    return redis.call('DEL', KEYS[1])
end

