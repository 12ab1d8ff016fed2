-- Marks the process that runs this script, whose wait for an admission begins. An admission deletes
-- the mark, and so does a loss of data. So as long as it is there, the node has not voted since.
--
-- KEYS  1 the node's membership record.
-- ARGV  1 the run_id that the operator is connected to.
--       2 a random mark.
-- returns the mark: that of another operator, if the process has one; nil if it is another process.

if run_id() ~= ARGV[1] then
    return false
end
-- A file may have brought back the mark of another process.
local known = redis.call('HGET', KEYS[1], 'mark')
if known and string.sub(known, 1, #ARGV[1]) == ARGV[1] then
    return known
end
local mark = ARGV[1] .. ' ' .. ARGV[2]
redis.call('HSET', KEYS[1], 'mark', mark)
return mark
