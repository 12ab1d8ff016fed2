
-- The node may not vote, the lock is not free, or the counter is missing, high, or no token.
if not may_vote then
    return no_vote(KEYS[3], ARGV[1])
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
local start, problem = last_token(KEYS[2], ARGV[4])
if not start then
    return redis.error_reply(problem)
end
redis.call('SET', KEYS[2], digits(start))
redis.call('SET', KEYS[1], digits(start) .. ' ' .. ARGV[2], 'PX', ARGV[3])
return redis.call('INCR', KEYS[2])
