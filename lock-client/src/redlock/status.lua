-- Returns the state of the lock and its counter on this node at one moment. A node that votes for
-- another roster may know an older state.
--
-- KEYS  1 the lock, as in grant.lua.
--       2 the counter.
--       3 the node's record.
-- ARGV  1 the vote, as in vote.lua.
-- returns {the lock as "<token> <grant> <holder> <floor>" or nil, remaining ms (-1 if it never
--         expires, -2 if it is free), the counter or nil}.

local rejection = no_vote(KEYS[3], ARGV[1])
if rejection then
    return rejection
end
local lock = redis.call('GET', KEYS[1])
local token, grant, holder, floor = parts(lock)
return {
    token and token .. ' ' .. grant .. ' ' .. holder .. ' ' .. floor or lock,
    redis.call('PTTL', KEYS[1]),
    redis.call('GET', KEYS[2]),
}
