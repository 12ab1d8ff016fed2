-- Takes the lock on this node if it is free: the next count is the node's grant.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the counter
--       3 what the node was admitted as
-- ARGV  1 cluster
--       2 run_id
--       3 holder
--       4 ttl in milliseconds
--       5 what a missing counter starts at
-- answers {1, grant, ''} if the lock is the holder's, {0, remaining ms or -1 if it has no end, holder}
-- if it is another's

local refusal = no_vote(KEYS[3], ARGV[1], ARGV[2], ARGV[4])
if refusal then
    return refusal
end
local _, grant, holder = owner(KEYS[1])
if holder == ARGV[3] then
    -- The request was delivered twice.
    return {1, tonumber(grant), ''}
end
if holder then
    return {0, redis.call('PTTL', KEYS[1]), holder}
end
local last, problem = last_token(KEYS[2], ARGV[5])
if not last then
    return redis.error_reply(problem)
end
grant = digits(last + 1)
redis.call('SET', KEYS[2], grant)
redis.call('SET', KEYS[1], grant .. ' ' .. grant .. ' ' .. ARGV[3], 'NX', 'PX', ARGV[4])
return {1, last + 1, ''}
