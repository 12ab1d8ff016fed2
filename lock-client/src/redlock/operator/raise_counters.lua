-- Raises counters that are missing, or lower than on another node.
--
-- KEYS  the counters.
-- ARGV  their values on the other node.
-- returns how many were raised.

local raised = 0
for i, counter in ipairs(KEYS) do
    local last = redis.call('GET', counter)
    -- A counter that is not a number stays as it is: the node grants nothing from it.
    if not last or (tonumber(last) or math.huge) < tonumber(ARGV[i]) then
        redis.call('SET', counter, ARGV[i])
        raised = raised + 1
    end
end
return raised
