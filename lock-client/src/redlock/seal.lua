-- Seals a token: raises the counter to it, if the lock on this node still belongs to this
-- ownership. From then on, this node grants no lock with that token or a lower one. The ttl stays.
--
-- KEYS  1 the lock, as in grant.lua.
--       2 the counter.
--       3 the node's record.
-- ARGV  1 the vote, as in vote.lua.
--       2 holder.
--       3 grant on this node.
--       4 the common grant of a round, which replaces the node's own; after the round, the grant on
--         this node again.
--       5 token.
-- returns {token, grant, floor} if the token is sealed;
--         {0, grant, floor} if the holder has the lock under another grant, or with a floor above the
--         token; else {0}.

local rejection = no_vote(KEYS[3], ARGV[1])
if rejection then
    return rejection
end
-- The holder alone does not prove the ownership: a late, duplicated grant may have taken the lock
-- again, and tokens may have been issued in between. So the grant must match, too.
local lock = redis.call('GET', KEYS[1])
local token, grant, floor = owned(lock, ARGV[2], ARGV[3], ARGV[4])
if not token then
    return grant
end
if tonumber(ARGV[5]) < tonumber(floor) then
    -- Another client may have had a higher token on this node.
    return {0, tonumber(grant), tonumber(floor)}
end
if raise_counter(KEYS[2], ARGV[5]) == nil then
    return redis.error_reply('FENCED the counter is not a whole number: ' .. KEYS[2])
end
token = digits(math.max(tonumber(token), tonumber(ARGV[5])))
redis.call('SET', KEYS[1], value(token, ARGV[4], ARGV[2], floor), 'KEEPTTL')
return {tonumber(ARGV[5]), tonumber(ARGV[4]), tonumber(floor)}
