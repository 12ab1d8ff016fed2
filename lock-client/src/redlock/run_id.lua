-- The process that runs this: Redis makes a new id with each start.
local function run_id()
    return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

