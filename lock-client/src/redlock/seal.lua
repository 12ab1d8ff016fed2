-- Seals a token: raises the counter to it, if the lock on this node still belongs to this
-- ownership. From then on, this node grants no lock with that token or a lower one. The ttl stays.
--
-- KEYS  1 the lock, "<token> <grant> <holder>".
--       2 the counter.
--       3 the node's membership record.
-- ARGV  1 cluster.
--       2 run_id.
--       3 holder.
--       4 grant on this node: its own, or the common one if the node has sealed before.
--       5 the common grant of all sealed nodes, which replaces this node's own.
--       6 token.
-- returns 1 if the token is sealed, 0 if the lock does not belong to this ownership any more.

local refusal = no_vote(KEYS[3], ARGV[1], ARGV[2])
if refusal then
    return refusal
end
-- The holder alone does not prove the ownership: a late, duplicated grant may have taken the lock
-- again, and tokens may have been issued in between. So the grant must match, too.
local token, grant, holder = parts(redis.call('GET', KEYS[1]))
if holder ~= ARGV[3] or (grant ~= ARGV[4] and grant ~= ARGV[5]) then
    return 0
end
raise_counter(KEYS[2], ARGV[6])
token = math.max(tonumber(token), tonumber(ARGV[6]))
redis.call('SET', KEYS[1], digits(token) .. ' ' .. ARGV[5] .. ' ' .. holder, 'KEEPTTL')
return 1
