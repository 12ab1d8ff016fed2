-- Raises counters that are missing, or lower than on another node.
--
-- KEYS  the counters.
-- ARGV  their values on the other node.
-- returns how many were raised.

local raised = 0
for i, counter in ipairs(KEYS) do
    if raise_counter(counter, ARGV[i]) then
        raised = raised + 1
    end
end
return raised
