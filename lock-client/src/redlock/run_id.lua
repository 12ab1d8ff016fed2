-- The id of the process that runs this script. Redis creates a new one at each start.
local function run_id()
    return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

