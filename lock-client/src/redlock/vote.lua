-- Whether this node may vote, and the lock's value.

-- The error for a client whose vote is not the node's. It says whether the process or the epoch is
-- another. The scripts compare the votes themselves: that is one comparison for both.
--
-- node  the key of the node's membership record: a hash with the node's `vote`, which is the id of
--       the change that began its epoch and the `run_id` of the admitted process.
-- vote  the same, as the client knows it: the epoch in which it asks, and the process that it is
--       connected to.
local function no_vote(node, vote)
    local process = string.match(vote, ' (%S+)$')
    if redis.call('HGET', node, 'run_id') ~= process then
        return redis.error_reply('NOVOTE it has not been admitted')
    end
    return redis.error_reply('OTHEREPOCH the members have changed')
end

-- The token, the grant, the holder and the floor in a lock's value; nothing if there is no lock.
local function parts(lock)
    local floor, holder, token, grant = string.match(lock or '', '^(%d+) (%S+) ?(%d*) ?(%d*)$')
    if token == '' then
        -- After a grant, the token and the grant are the floor plus 1.
        grant = string.format('%.0f', floor + 1)
        token = grant
    end
    return token, grant, holder, floor
end

-- A lock's value after a join or a seal.
local function value(token, grant, holder, floor)
    return floor .. ' ' .. holder .. ' ' .. token .. ' ' .. grant
end
