-- Sets the full ttl if the lock on this node still belongs to this ownership.
--
-- KEYS  1 the lock, "<token> <grant> <holder>".
--       2 the node's membership record.
-- ARGV  1 cluster.
--       2 run_id.
--       3 holder.
--       4 grant.
--       5 ttl in milliseconds.
-- returns the last token sealed here, 0 if the lock does not belong to this ownership any more.

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
