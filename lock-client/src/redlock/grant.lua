-- Grants the lock on this node if it is free. The node's grant is its counter, incremented.
--
-- KEYS  1 the lock: "<floor> <holder>" after a grant, "<floor> <holder> <token> <grant>" after a join
--         or a seal. After a grant, the token and the grant are the floor plus 1.
--       2 the counter.
--       3 the node's record.
-- ARGV  1 the vote, as in vote.lua.
--       2 holder.
--       3 ttl in milliseconds.
--       4 the start of a missing counter.
-- returns the grant if the holder has the lock; if it is new, its floor is the grant less 1;
--         else {remaining ms or -1 if it never expires, the other holder}.

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
if floor == ARGV[4] then
    -- The counter may be missing.
    redis.call('SET', KEYS[2], floor)
end
local grant = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], floor .. ' ' .. ARGV[2], 'PX', ARGV[3])
return grant
