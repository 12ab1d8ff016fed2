-- Tries whether this node votes and takes writes. Leaves nothing.
--
-- KEYS  1 a lock that no client uses.
--       2 the node's record.
-- ARGV  1 the vote, as in vote.lua.

local rejection = no_vote(KEYS[2], ARGV[1])
if rejection then
    return rejection
end
-- Should the user lack a permission for the next command, it expires.
redis.call('SET', KEYS[1], '', 'PX', 1000)
redis.call('DEL', KEYS[1])
return 1
