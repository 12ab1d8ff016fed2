-- Admits the process that runs this script to an epoch of a cluster.
--
-- KEYS  1 the node's membership record.
-- ARGV  1 the run_id that the operator is connected to.
--       2 the node's address among the members.
--       3 cluster.
--       4 the number of the epoch.
--       5 the change that began the epoch.
--       6 the members, with line feeds between them.
--       7 the longest ttl that the cluster grants, in milliseconds.
--       8 the highest ballot that the other members have promised on the end of the epoch.
--       9 the same on the end of the epoch before.
--      10 the highest ballot in which they accepted the change.
--      11 the change that began the epoch before; '' if this is the first.
--      12 the members of that epoch.
--      13 the mark that the process has had since its wait began.
-- returns 1 if the process is admitted; 0 if it is another process, has another mark, or takes part in
--         another cluster or in a later epoch.

local known = redis.call('HMGET', KEYS[1], 'cluster', 'epoch', 'change', 'run_id', 'mark', 'vote')
local vote = ARGV[5] .. ' ' .. ARGV[1]
if run_id() ~= ARGV[1] or (known[1] and known[1] ~= ARGV[3]) then
    return 0
end
if known[4] == ARGV[1] and known[6] == vote then
    -- It was admitted before, and may have made promises since.
    return 1
end
-- What another process took part in, this one has forgotten.
if known[4] == ARGV[1] and (tonumber(known[2]) or 0) > tonumber(ARGV[4]) then
    return 0
end
if known[5] ~= ARGV[13] then
    -- It was admitted meanwhile, and may have voted before it lost its data: a new wait must begin.
    return 0
end
if known[4] == ARGV[1] and known[3] == ARGV[5] then
    -- It has lost its vote alone, and keeps its promises.
    redis.call('HSET', KEYS[1], 'vote', vote)
    redis.call('HDEL', KEYS[1], 'mark')
    return 1
end
redis.call('DEL', KEYS[1])
redis.call(
    'HSET', KEYS[1], 'vote', vote, 'run_id', ARGV[1], 'address', ARGV[2],
    'cluster', ARGV[3], 'epoch', ARGV[4], 'change', ARGV[5], 'members', ARGV[6],
    'max_ttl_ms', ARGV[7], 'decided', '1')
-- The process before may have promised or accepted ballots, and has forgotten them. What mattered of
-- that, a majority of the other members knows.
for i, field in ipairs({'promised', 'last_promised', 'ballot', 'last_change', 'last_members'}) do
    if ARGV[7 + i] ~= '' then
        redis.call('HSET', KEYS[1], field, ARGV[7 + i])
    end
end
return 1
