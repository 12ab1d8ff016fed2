-- Accepts a change of the members. From then on, the node rejects all votes of the epoch before. It
-- votes in the epoch that the change begins, unless the change removes it.
--
-- KEYS  1 the node's membership record.
-- ARGV  1 the run_id that has promised.
--       2 the change that began the epoch before.
--       3 the members of that epoch.
--       4 the ballot.
--       5 the number of the new epoch.
--       6 the change that begins it.
--       7 its members, with line feeds between them.
-- returns 1 if the change is accepted; 0 if it is another process, has promised another ballot, or
--         does not know its own address.

local known = redis.call(
    'HMGET', KEYS[1], 'run_id', 'change', 'promised', 'last_change', 'last_promised', 'address')
if run_id() ~= ARGV[1] or known[1] ~= ARGV[1] then
    return 0
end
local promised
if known[2] == ARGV[2] then
    promised = known[3]
elseif known[4] == ARGV[2] then
    promised = known[5]
end
local address = known[6]
if promised ~= ARGV[4] or not address then
    return 0
end
if known[2] ~= ARGV[6] then
    -- This promise concerned the end of an epoch that this node has left. If the change is the same
    -- again, a promise concerns its end, and stays.
    redis.call('HDEL', KEYS[1], 'promised', 'decided')
end
-- What another operator waits for concerns the epoch before.
redis.call('HDEL', KEYS[1], 'mark')
redis.call(
    'HSET', KEYS[1], 'last_change', ARGV[2], 'last_members', ARGV[3], 'last_promised', ARGV[4],
    'ballot', ARGV[4], 'epoch', ARGV[5], 'change', ARGV[6], 'members', ARGV[7])
-- A removed node still takes part in the ballot. It must not vote for clients: no admission copies
-- what it knows.
if string.find('\n' .. ARGV[7] .. '\n', '\n' .. address .. '\n', 1, true) then
    redis.call('HSET', KEYS[1], 'vote', ARGV[6] .. ' ' .. ARGV[1])
else
    redis.call('HDEL', KEYS[1], 'vote')
end
return 1
