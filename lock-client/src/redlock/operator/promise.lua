-- Promises to accept nothing below a ballot on which change ends an epoch.
--
-- KEYS  1 the node's membership record.
-- ARGV  1 the run_id that the operator is connected to.
--       2 the change that began the epoch.
--       3 the ballot.
-- returns {1} if it has promised;
--         {1, ballot, change, members} if it has, and had accepted this change before;
--         {0, ballot} if it had promised a higher ballot before;
--         {-1} if it is another process, or does not take part in that epoch's end. A vote is not
--         needed.

local known = redis.call('HMGET', KEYS[1], 'run_id', 'change', 'last_change')
if run_id() ~= ARGV[1] or known[1] ~= ARGV[1] then
    return {-1}
end
-- A node that has accepted a change has left the epoch, and still votes on how it ends.
local promised
if known[2] == ARGV[2] then
    promised = 'promised'
elseif known[3] == ARGV[2] then
    promised = 'last_promised'
else
    return {-1}
end
local highest = redis.call('HGET', KEYS[1], promised)
if highest and highest > ARGV[3] then
    return {0, highest}
end
redis.call('HSET', KEYS[1], promised, ARGV[3])
if promised == 'promised' then
    return {1}
end
local accepted = redis.call('HMGET', KEYS[1], 'ballot', 'change', 'members')
return {1, accepted[1], accepted[2], accepted[3]}
