-- Sets the full ttl if the lock on this node still belongs to this ownership.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <floor>".
--       2 the node's membership record.
-- ARGV  1 the change that began the client's epoch.
--       2 run_id.
--       3 holder.
--       4 grant on this node.
--       5 ttl in milliseconds.
-- returns {the last token sealed here, grant, floor};
--         {0, grant, floor} if the holder has the lock under another grant; else {0}.

local refusal = no_vote(KEYS[2], ARGV[1], ARGV[2], ARGV[5])
if refusal then
    return refusal
end
local token, grant, floor = owned(redis.call('GET', KEYS[1]), ARGV[3], ARGV[4])
if not token then
    return grant
end
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return {tonumber(token), tonumber(grant), tonumber(floor)}
