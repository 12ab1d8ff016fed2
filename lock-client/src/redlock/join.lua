-- Takes this node for a lease that does not have it, if the lock is free here.
--
-- If the counter is not above the lease's token, the node grants what the lease has, and counts for
-- it. Otherwise another client may have had a higher token here. Then the node grants its counter, incremented.
-- Its floor shows that it does not count yet.
--
-- KEYS  1 the lock, as in grant.lua.
--       2 the counter.
--       3 the node's record.
-- ARGV  1 the vote, as in vote.lua.
--       2 holder.
--       3 ttl in milliseconds.
--       4 the start of a missing counter.
--       5 the lease's grant.
--       6 the lease's token.
-- returns {grant, grant, floor} if the holder has the lock; else {0}.

local rejection = no_vote(KEYS[3], ARGV[1], ARGV[3])
if rejection then
    return rejection
end
local lock = redis.call('GET', KEYS[1])
if lock then
    local _, grant, holder, floor = parts(lock)
    if holder == ARGV[2] then
        -- The lease has the node already: it was granted late, or the answer to a join was lost.
        return {tonumber(grant), tonumber(grant), tonumber(floor)}
    end
    return {0}
end
local floor, problem = last_token(KEYS[2], ARGV[4])
if not floor then
    return redis.error_reply(problem)
end
local grant, counter = ARGV[5], ARGV[6]
if floor > tonumber(ARGV[6]) then
    grant = digits(floor + 1)
    counter = grant
end
redis.call('SET', KEYS[2], counter)
redis.call('SET', KEYS[1], value(ARGV[6], grant, ARGV[2], digits(floor)), 'PX', ARGV[3])
return {tonumber(grant), tonumber(grant), floor}
