-- Sets the full ttl if the lock on this node still belongs to this ownership.
--
-- KEYS  1 the lock, as in grant.lua.
--       2 the node's record.
-- ARGV  1 the vote, as in vote.lua.
--       2 holder.
--       3 grant on this node.
--       4 ttl in milliseconds.
-- returns {the last token sealed here, grant, floor};
--         {0, grant, floor} if the holder has the lock under another grant; else {0}.

local rejection = no_vote(KEYS[2], ARGV[1], ARGV[4])
if rejection then
    return rejection
end
local token, grant, floor = owned(redis.call('GET', KEYS[1]), ARGV[2], ARGV[3])
if not token then
    return grant
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {tonumber(token), tonumber(grant), tonumber(floor)}
