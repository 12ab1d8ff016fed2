-- Grants the lock on this node if it is free. The node's grant is its counter, incremented.
--
-- KEYS  1 the lock, "<token> <grant> <holder> <floor>".
--       2 the counter.
--       3 the node's membership record.
-- ARGV  1 the change that began the client's epoch.
--       2 run_id.
--       3 holder.
--       4 ttl in milliseconds.
--       5 the start of a missing counter.
-- returns {grant, floor} if the holder has the lock;
--         else {remaining ms or -1 if it never expires, the other holder}.

local refusal = no_vote(KEYS[3], ARGV[1], ARGV[2], ARGV[4])
if refusal then
    return refusal
end
local lock = redis.call('GET', KEYS[1])
if lock then
    local _, grant, holder, floor = parts(lock)
    if holder == ARGV[3] then
        -- The request was delivered twice: the holder is new for every round.
        return {tonumber(grant), tonumber(floor)}
    end
    return {redis.call('PTTL', KEYS[1]), holder}
end
local last, problem = last_token(KEYS[2], ARGV[5])
if not last then
    return redis.error_reply(problem)
end
local grant = digits(last + 1)
redis.call('SET', KEYS[2], grant)
redis.call('SET', KEYS[1], value(grant, grant, ARGV[3], digits(last)), 'PX', ARGV[4])
return {last + 1, last}
