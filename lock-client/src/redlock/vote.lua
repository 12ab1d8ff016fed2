-- Whether this node votes, and the lock's value.

-- Whether the process that a client names may vote, for the same roster or another.
local function is_admitted(own, vote)
    return string.match(own or '', ' (%S+) ') == string.match(vote, ' (%S+) ')
end

-- Returns an error unless this node votes for the client: the process or the roster is another, or the
-- ttl is longer than any that the cluster grants. An admission waits for the longest ttl, so no lock
-- may have a longer one.
--
-- node  the key of the node's record: a hash with the node's `vote`, which is the longest ttl, the
--       `run_id` of the admitted process, and the hash of its roster.
-- vote  the same, as the client knows it: the roster for which it asks, and the process that it is
--       connected to.
-- ttl   in milliseconds; none if the request sets none.
local function no_vote(node, vote, ttl)
    local own = redis.call('HGET', node, 'vote')
    if own ~= vote then
        if not is_admitted(own, vote) then
            return redis.error_reply('NOVOTE it has not been admitted')
        end
        return redis.error_reply('OTHERROSTER the members have changed')
    end
    local longest = tonumber(string.match(vote, '^%d+'))
    if ttl and not (string.find(ttl, '^[1-9]%d*$') and tonumber(ttl) <= longest) then
        return redis.error_reply('FENCED it grants no ttl as long as that')
    end
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
