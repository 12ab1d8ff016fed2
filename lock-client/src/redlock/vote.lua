-- Whether this node may vote.

-- Nothing if it may; else an error that says why not.
--
-- node     what the node was admitted as: a hash with the cluster's id, the `run_id` of the process
--          that was admitted, and `max_ttl_ms`
-- cluster  the cluster that the client asks
-- run_id   the process that the client is connected to
-- ttl      for how long the lock is asked for, if it is
local function no_vote(node, cluster, run_id, ttl)
    local admitted = redis.call('HMGET', node, 'cluster', 'run_id', 'max_ttl_ms')
    if admitted[1] ~= cluster or admitted[2] ~= run_id then
        return redis.error_reply('NOVOTE it has not been admitted')
    end
    if ttl and tonumber(ttl) > tonumber(admitted[3]) then
        return redis.error_reply(
            'FENCED the cluster grants no longer ttl than ' .. admitted[3] .. ' ms')
    end
end

-- The token, the grant and the holder of a lock's value; nothing if there is none.
local function parts(lock)
    return string.match(lock or '', '^(%d+) (%d+) (.*)$')
end

