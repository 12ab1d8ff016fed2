-- Raises counters that are missing, or lower than on another node.
--
-- KEYS  the counters.
-- ARGV  their values on the other node.
-- returns how many were raised, and then the keys that have something else than a counter.

local raised, others = 0, {}
for i, counter in ipairs(KEYS) do
    local was_raised = raise_counter(counter, ARGV[i])
    if was_raised == nil then
        table.insert(others, counter)
    elseif was_raised then
        raised = raised + 1
    end
end
return {raised, others}
