-- The end of grant.lua, after the usual case: the node does not vote, the lock is not free, or the counter is
-- missing or none.

local rejection = no_vote(KEYS[3], ARGV[1], ARGV[3])
if rejection then
    return rejection
end
local lock = redis.call('GET', KEYS[1])
if lock then
    local _, grant, holder = parts(lock)
    if holder == ARGV[2] then
        -- The request was delivered twice: the holder is new for every round.
        return tonumber(grant)
    end
    return {redis.call('PTTL', KEYS[1]), holder}
end
local last, floor = last_token(KEYS[2], ARGV[4])
if not last then
    return redis.error_reply(floor)
end
redis.call('SET', KEYS[2], floor)
local grant = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], floor .. ' ' .. ARGV[2], 'PX', ARGV[3])
return grant
