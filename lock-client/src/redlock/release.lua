-- Frees the lock on this node if the holder has it, notifies the waiters, and raises the counter.
-- With equal counters on all nodes, the next grant takes one round trip.
--
-- It grants no lock and lowers no counter. So it needs no vote.
--
-- KEYS  1 the lock, as in grant.lua.
--       2 the counter.
-- ARGV  1 holder.
--       2 the token that the counter is raised to; 0 if it is unknown.
--       3 the channel that notifies waiters.
-- returns 1 if the holder had the lock, else 0.

local owned = string.match(redis.call('GET', KEYS[1]) or '', '^%d+ (%S+)') == ARGV[1]
if owned then
    redis.call('PUBLISH', ARGV[3], '')
    redis.call('DEL', KEYS[1])
end
-- A node whose memory is full may raise no counter. That only costs a later round a seal.
pcall(raise_counter, KEYS[2], ARGV[2])
return owned and 1 or 0
