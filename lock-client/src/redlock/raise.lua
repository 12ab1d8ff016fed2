-- Raises the counter above a token, if the lock on this node still belongs to this ownership. This
-- is the first half of a reissue.
--
-- KEYS  1 the lock, as in grant.lua.
--       2 the counter.
--       3 the node's record.
-- ARGV  1 the vote, as in vote.lua.
--       2 holder.
--       3 grant on this node.
--       4 the token that the counter must exceed.
--       5 the start of a missing counter.
-- returns {the counter, grant, floor};
--         {0, grant, floor} if the holder has the lock under another grant; else {0}.

local rejection = no_vote(KEYS[3], ARGV[1])
if rejection then
    return rejection
end
local token, grant, floor = owned(redis.call('GET', KEYS[1]), ARGV[2], ARGV[3])
if not token then
    return grant
end
local last, problem = last_token(KEYS[2], ARGV[5])
if not last then
    return redis.error_reply(problem)
end
last = math.max(last, tonumber(token), tonumber(ARGV[4]))
if last >= 999999999999999 then
    return redis.error_reply('FENCED there is no token above the highest: ' .. KEYS[2])
end
redis.call('SET', KEYS[2], digits(last + 1))
return {last + 1, tonumber(grant), tonumber(floor)}
