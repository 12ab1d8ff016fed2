-- Frees the lock on this node if the holder has it, notifies the waiters, and raises the counter.
-- With equal counters on all nodes, the next grant takes one round trip.
--
-- It grants no lock and lowers no counter. So it needs no vote. But the answer of a process without one
-- proves nothing: it may have lost the lock.
--
-- KEYS  1 the lock, as in grant.lua.
--       2 the counter.
--       3 the node's record.
-- ARGV  1 the vote, as in vote.lua. One for another roster is accepted, too.
--       2 holder.
--       3 the token that the counter is raised to; 0 if it is unknown.
--       4 the channel that notifies waiters.
-- returns 1 if the holder had the lock, else 0; an error if the process has no vote.

local owned = string.match(redis.call('GET', KEYS[1]) or '', '^%d+ (%S+)') == ARGV[2]
if owned then
    redis.call('PUBLISH', ARGV[4], '')
    redis.call('DEL', KEYS[1])
end
if redis.pcall('GET', KEYS[2]) ~= ARGV[3] then
    -- A node whose memory is full may raise no counter. That only costs a later round a seal.
    pcall(raise_counter, KEYS[2], ARGV[3])
end
local own = redis.call('HGET', KEYS[3], 'vote')
if own ~= ARGV[1] and not is_admitted(own, ARGV[1]) then
    return redis.error_reply('NOVOTE it has not been admitted')
end
return owned and 1 or 0
