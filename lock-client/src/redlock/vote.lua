-- Whether this node may vote, and the lock's value.

-- Returns nothing if the node may vote, else an error with the reason.
--
-- node    the key of the node's membership record: a hash with the id of the change that began the
--         node's epoch, the `run_id` of the admitted process, and `max_ttl_ms`.
-- change  the epoch in which the client asks for the vote.
-- run_id  the process that the client is connected to.
-- ttl     the requested ttl, if the request has one.
local function no_vote(node, change, run_id, ttl)
    local admitted = redis.call('HMGET', node, 'change', 'run_id', 'max_ttl_ms')
    if admitted[2] ~= run_id then
        return redis.error_reply('NOVOTE it has not been admitted')
    end
    if admitted[1] ~= change then
        return redis.error_reply('OTHEREPOCH the members have changed')
    end
    if ttl and tonumber(ttl) > tonumber(admitted[3]) then
        return redis.error_reply(
            'LONGTTL the cluster grants no longer ttl than ' .. admitted[3] .. ' ms')
    end
end

-- The token, the grant, the holder and the floor in a lock's value; nothing if there is no lock.
local function parts(lock)
    return string.match(lock or '', '^(%d+) (%d+) (%S+) (%d+)$')
end

-- A lock's value.
local function value(token, grant, holder, floor)
    return token .. ' ' .. grant .. ' ' .. holder .. ' ' .. floor
end
