-- Grants the lock on this node if it is free. The node's grant is its counter, incremented. Here is
-- the usual case; what follows in grant_else.lua is for all others.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <floor>".
--       2 the counter.
--       3 the node's membership record.
-- ARGV  1 the vote: the change that began the client's epoch, and the run_id.
--       2 holder.
--       3 ttl in milliseconds.
--       4 the start of a missing counter.
-- returns the grant if the holder has the lock; if it is new, its floor is the grant less 1;
--         else {remaining ms or -1 if it never expires, the other holder}.

-- Usually the node may vote, the lock is free, and the counter exists. This defines no functions,
-- and has Redis print the number, because Lua takes longer for those than for the rest.
local may_vote = redis.call('HGET', KEYS[3], 'vote') == ARGV[1]
local lock = redis.call('GET', KEYS[1])
local floor = redis.call('GET', KEYS[2])
local last = tonumber(floor)
if may_vote and not lock and last and last >= 0 and last % 1 == 0 and last < 999999999999999 then
    local count = redis.call('INCR', KEYS[2])
    local grant = redis.call('GET', KEYS[2])
    redis.call(
        'SET', KEYS[1], grant .. ' ' .. grant .. ' ' .. ARGV[2] .. ' ' .. floor, 'PX', ARGV[3])
    return count
end

