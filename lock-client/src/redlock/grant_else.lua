
-- The node may not vote, the lock is not free, or the counter is missing or no token.
if not may_vote then
    return no_vote(KEYS[3], ARGV[1])
end
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
local count = redis.call('INCR', KEYS[2])
local grant = digits(count)
redis.call('SET', KEYS[1], value(grant, grant, ARGV[2], digits(start)), 'PX', ARGV[3])
return count
