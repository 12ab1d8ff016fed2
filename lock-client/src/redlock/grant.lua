-- Grants the lock on this node if it is free. The node's grant is its counter, incremented.
--
-- KEYS  1 the lock: "<floor> <holder>" after a grant, "<floor> <holder> <token> <grant>" after a join
--         or a seal. After a grant, the token and the grant are the floor plus 1.
--       2 the counter.
--       3 the node's record.
-- ARGV  1 the vote, as in vote.lua.
--       2 holder.
--       3 ttl in milliseconds.
--       4 the start of a missing counter.
-- returns the grant if the holder has the lock; if it is new, its floor is the grant less 1;
--         else {remaining ms or -1 if it never expires, the other holder}.

-- The usual case stands before the functions that the others need: behind them, it takes a sixth longer.
if redis.call('HGET', KEYS[3], 'vote') == ARGV[1]
    and string.find(ARGV[3], '^[1-9]%d*$')
    and tonumber(ARGV[3]) <= tonumber(string.match(ARGV[1], '^%d+'))
    and not redis.call('GET', KEYS[1]) then
    local floor = redis.call('GET', KEYS[2])
    local last = floor and string.find(floor, '^%d+$') and tonumber(floor)
    if last and last < 999999999999999 then
        local grant = redis.call('INCR', KEYS[2])
        redis.call('SET', KEYS[1], floor .. ' ' .. ARGV[2], 'PX', ARGV[3])
        return grant
    end
end

