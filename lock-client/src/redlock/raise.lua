-- Raises the counter above a token, if the lock on this node still belongs to this ownership. This
-- is the first half of a reissue.
--
-- KEYS  1 the lock, "<token> <grant> <holder>".
--       2 the counter.
--       3 the node's membership record.
-- ARGV  1 cluster.
--       2 run_id.
--       3 holder.
--       4 grant.
--       5 the token that the counter must exceed.
--       6 the start of a missing counter.
-- returns the counter, 0 if the lock does not belong to this ownership any more.

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
