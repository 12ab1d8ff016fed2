-- The record of this node: `roster`, the whole text, and `vote` of the admitted process.

-- Whether a roster names a process for a seat.
local function names(roster, process)
    return string.find(roster or '', '\n%d+ ' .. process .. ' ') ~= nil
end

-- The vote of a process for a roster, as the voting scripts compare it.
local function vote_of(roster, process)
    local longest = string.match(roster, '^%S+ %d+ (%d+)')
    return redis.sha1hex(roster) .. ' ' .. process .. ' ' .. longest
end

-- The roster of a process, and whether it is admitted. The data of another process have another's.
local function own(node, process)
    local known = redis.call('HMGET', node, 'roster', 'vote')
    if names(known[1], process) then
        return known[1], known[2] == vote_of(known[1], process)
    end
    return nil, false
end

-- The answer of all scripts here: the process, the roster in its data, and whether it is admitted.
local function state(node)
    local process = run_id()
    local _, is_admitted = own(node, process)
    return {process, redis.call('HGET', node, 'roster'), is_admitted and 1 or 0}
end

