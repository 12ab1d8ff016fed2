-- Lets a process without a vote hold a roster that gives it a seat. Its data may have locks, which an
-- earlier process has granted: they are deleted, because a lease might count them.
--
-- A process's term never falls. A process that votes keeps its vote, unless the roster is of a later
-- term.
--
-- KEYS  1 the node's record.
-- ARGV  1 the process.
--       2 the roster.
--       3 the roster that the operator has seen in its data; '' if there was none.
-- returns its state.

local process, roster = ARGV[1], ARGV[2]
local seen = redis.call('HGET', KEYS[1], 'roster') or ''
if run_id() == process and names(roster, process) and seen == ARGV[3] and seen ~= roster then
    local held, is_admitted = own(KEYS[1], process)
    local cluster, term = string.match(roster, '^(%S+) (%d+)')
    local own_cluster, own_term = string.match(held or '', '^(%S+) (%d+)')
    local is_same = own_cluster == cluster
    local is_later = is_same and tonumber(own_term) > tonumber(term)
    local votes = is_admitted and not (is_same and tonumber(own_term) < tonumber(term))
    if not is_later and not votes then
        for _, lock in ipairs(redis.call('KEYS', 'fenced:{*}:lock')) do
            redis.call('DEL', lock)
        end
        redis.call('HDEL', KEYS[1], 'vote')
        redis.call('HSET', KEYS[1], 'roster', roster)
    end
end
return state(KEYS[1])
