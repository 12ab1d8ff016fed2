-- Raises counters that are missing, or lower than on another node. Replaces what is no counter: this node
-- has no vote, so that nobody relies on it.
--
-- KEYS  the counters.
-- ARGV  their values on the other node, and the process that runs this script.
-- returns how many were raised.

if run_id() ~= ARGV[#ARGV] then
    return redis.error_reply('FENCED it is another process')
end
local raised = 0
for i, counter in ipairs(KEYS) do
    local was_raised = raise_counter(counter, ARGV[i])
    if was_raised == nil then
        redis.call('SET', counter, ARGV[i])
    end
    if was_raised ~= false then
        raised = raised + 1
    end
end
return raised
