-- Grants the lock on this node if it is free. The node's grant is its counter, incremented. Here is
-- the usual case; what follows in grant_else.lua is for all others.
--
-- KEYS  1 the lock: "<floor> <holder>" after a grant, "<floor> <holder> <token> <grant>" after a join
--         or a seal. After a grant, the token and the grant are the floor plus 1.
--       2 the counter.
--       3 the node's membership record.
-- ARGV  1 the vote: the change that began the client's epoch, and the run_id.
--       2 holder.
--       3 ttl in milliseconds.
--       4 the start of a missing counter.
-- returns the grant if the holder has the lock; if it is new, its floor is the grant less 1;
--         else {remaining ms or -1 if it never expires, the other holder}.

-- Usually the node may vote, the lock is free, and the counter exists. This defines no functions, and
-- prints no number, because Lua takes longer for those than for the rest. A counter of 15 digits may
-- be the highest token.
local may_vote = redis.call('HGET', KEYS[3], 'vote') == ARGV[1]
local floor = may_vote and redis.call('GET', KEYS[2])
if floor and #floor < 15 and string.find(floor, '^[1-9]%d*$')
    and redis.call('SET', KEYS[1], floor .. ' ' .. ARGV[2], 'NX', 'PX', ARGV[3]) then
    return redis.call('INCR', KEYS[2])
end

