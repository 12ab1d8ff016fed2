-- Frees the lock on this node if it is the holder's, wakes who waits for it, and lifts the counter, so
-- that the nodes count alike: then the next grant takes one round trip.
--
-- It makes no token smaller, and gives no lock: so it takes no vote.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the counter
-- ARGV  1 holder
--       2 what the counter is lifted to: the grant, if it is known; else 0
--       3 the channel on which those who wait hear of it
-- answers 1 if it was the holder's, 0 if not

local lock = redis.call('GET', KEYS[1])
-- A node that has sealed the grant has counted to it.
if lock ~= ARGV[2] .. ' ' .. ARGV[2] .. ' ' .. ARGV[1] then
    lift(KEYS[2], ARGV[2])
    local _, _, holder = parts(lock)
    if holder ~= ARGV[1] then
        return 0
    end
end
redis.call('PUBLISH', ARGV[3], '')
return redis.call('DEL', KEYS[1])
