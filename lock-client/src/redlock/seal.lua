-- Lifts the counter to a token, if the lock on this node still belongs to this ownership: then nobody
-- gets as low a token here. The ttl stays.
--
-- KEYS  1 the lock, "<token> <grant> <holder>"
--       2 the counter
--       3 what the node was admitted as
-- ARGV  1 cluster
--       2 run_id
--       3 holder
--       4 grant: this node's own, or that of all nodes if it is sealed already
--       5 the grant of all nodes, which this one has from now on
--       6 token
-- answers 1 if it is sealed, 0 if the lock is no longer this ownership's

local refusal = no_vote(KEYS[3], ARGV[1], ARGV[2])
if refusal then
    return refusal
end
local token, grant, holder = parts(redis.call('GET', KEYS[1]))
if holder ~= ARGV[3] or (grant ~= ARGV[4] and grant ~= ARGV[5]) then
    return 0
end
lift(KEYS[2], ARGV[6])
token = math.max(tonumber(token), tonumber(ARGV[6]))
redis.call('SET', KEYS[1], digits(token) .. ' ' .. ARGV[5] .. ' ' .. holder, 'KEEPTTL')
return 1
