-- Raises the counter above a token, if the lock on this node still belongs to this ownership.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the counter
--       3 what the node was admitted as
-- ARGV  1 cluster
--       2 run_id
--       3 holder
--       4 grant
--       5 what the counter is raised above
--       6 what a missing counter starts at
-- answers the counter, 0 if the lock is no longer this ownership's

local refusal = no_vote(KEYS[3], ARGV[1], ARGV[2])
if refusal then
    return refusal
end
local token, grant, holder = parts(redis.call('GET', KEYS[1]))
if holder ~= ARGV[3] or grant ~= ARGV[4] then
    return 0
end
local last, problem = last_token(KEYS[2], ARGV[6])
if not last then
    return redis.error_reply(problem)
end
last = math.max(last, tonumber(token), tonumber(ARGV[5]))
if last >= 999999999999999 then
    return redis.error_reply('FENCED there is no token above the highest: ' .. KEYS[2])
end
redis.call('SET', KEYS[2], digits(last + 1))
return last + 1
