-- Marks the process that runs this script, whose wait for an admission begins. An admission deletes
-- the mark. So does a change that the node accepts, and a loss of data. So as long as it is there, the
-- node has got no vote since.
--
-- KEYS  1 the node's membership record.
-- ARGV  1 the run_id that the operator is connected to.
--       2 a random mark.
--       3 the vote in the record that the operator has read; '' if there was none.
-- returns the mark: that of another operator, if the process has one; nil if it is another process, or
--         has got another vote meanwhile.

if run_id() ~= ARGV[1] or (redis.call('HGET', KEYS[1], 'vote') or '') ~= ARGV[3] then
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
