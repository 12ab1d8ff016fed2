-- Frees the lock on this node if it is the holder's, wakes who waits for it, and lifts the counter, so
-- that the nodes count alike: then the next grant takes one round trip.
--
-- It makes no token smaller, and gives no lock: so it takes no vote.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the counter
-- ARGV  1 holder
--       2 what the counter is lifted to; 0 for nothing
--       3 the channel on which those who wait hear of it
-- answers 1 if it was the holder's, 0 if not

local _, _, holder = owner(KEYS[1])
lift(KEYS[2], ARGV[2])
if holder ~= ARGV[1] then
    return 0
end
redis.call('PUBLISH', ARGV[3], '')
return redis.call('DEL', KEYS[1])
