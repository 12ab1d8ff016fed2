-- Raises counters that are below those of another node, or missing.
--
-- KEYS  the counters
-- ARGV  what each is on the other node
-- answers how many were raised

local raised = 0
for i, counter in ipairs(KEYS) do
    local last = redis.call('GET', counter)
    -- One that is no number stays as it is: nothing is granted from it.
    if not last or (tonumber(last) or math.huge) < tonumber(ARGV[i]) then
        redis.call('SET', counter, ARGV[i])
        raised = raised + 1
    end
end
return raised
