-- Sets the full ttl if the lock on this node still belongs to this ownership.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 what the node was admitted as
-- ARGV  1 cluster
--       2 run_id
--       3 holder
--       4 grant
--       5 ttl in milliseconds
-- answers the token that was sealed here last, 0 if the lock is no longer this ownership's

local refusal = no_vote(KEYS[2], ARGV[1], ARGV[2], ARGV[5])
if refusal then
    return refusal
end
local token, grant, holder = parts(redis.call('GET', KEYS[1]))
if holder ~= ARGV[3] or grant ~= ARGV[4] then
    return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return tonumber(token)
