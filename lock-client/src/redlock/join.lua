-- Takes this node for a lease that does not have it, if the lock is free here.
--
-- If the counter is below the lease's token, the node grants what the lease has, and counts for it.
-- Otherwise another client may have had a token here. Then the node grants its counter, incremented.
-- Its floor shows that it does not count yet.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <floor>".
--       2 the counter.
--       3 the node's membership record.
-- ARGV  1 the change that began the client's epoch.
--       2 run_id.
--       3 holder.
--       4 ttl in milliseconds.
--       5 the start of a missing counter.
--       6 the lease's grant.
--       7 the lease's token.
-- returns {grant, floor} if the holder has the lock;
--         else {remaining ms or -1 if it never expires, the other holder}.

local refusal = no_vote(KEYS[3], ARGV[1], ARGV[2], ARGV[4])
if refusal then
    return refusal
end
local lock = redis.call('GET', KEYS[1])
if lock then
    local _, grant, holder, floor = parts(lock)
    if holder == ARGV[3] then
        -- The lease has the node already: it was granted late, or the answer to a join was lost.
        return {tonumber(grant), tonumber(floor)}
    end
    return {redis.call('PTTL', KEYS[1]), holder}
end
local floor, problem = last_token(KEYS[2], ARGV[5])
if not floor then
    return redis.error_reply(problem)
end
local grant, counter = ARGV[6], ARGV[7]
if floor >= tonumber(ARGV[7]) then
    grant = digits(floor + 1)
    counter = grant
end
redis.call('SET', KEYS[2], counter)
redis.call('SET', KEYS[1], value(ARGV[7], grant, ARGV[3], digits(floor)), 'PX', ARGV[4])
return {tonumber(grant), floor}
