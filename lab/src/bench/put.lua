-- The requests of wrk: fenced writes of 5 bytes. The arguments are the number of resources, the number of
-- writes to skip, and the number of writes in a transaction or 0. A bearer token may follow. Prints a JSON
-- line at the end. wrk itself counts the responses that are errors.

-- A prime that doesn't divide the number of resources, so that all of them are visited.
local STRIDE = 7919

function put(resource)
    wrk.headers["Fencing-Token"] = "34"
    wrk.headers["Fencing-Holder"] = "bench"
    return wrk.format("PUT", "/v1/resources/bench/" .. resource, nil, "hello")
end

function transaction(first, writes, resources)
    local written = {}
    for write = 1, writes do
        local resource = (first + write) % resources + 1
        written[write] = '{"resource": "bench/' .. resource .. '", "token": 34, "holder": "bench", '
            .. '"value": {"text": "hello"}}'
    end
    wrk.headers["Content-Type"] = "application/json"
    local body = '{"writes": [' .. table.concat(written, ", ") .. "]}"
    return wrk.format("POST", "/v1/transactions", nil, body)
end

function init(arguments)
    local resources = tonumber(arguments[1])
    local in_transaction = tonumber(arguments[3])
    if arguments[4] then
        wrk.headers["Authorization"] = "Bearer " .. arguments[4]
    end
    requests = {}
    for resource = 1, resources do
        if in_transaction > 0 then
            requests[resource] = transaction(resource, in_transaction, resources)
        else
            requests[resource] = put(resource)
        end
    end
    current = tonumber(arguments[2]) * STRIDE % resources
end

function request()
    current = (current + STRIDE) % #requests
    return requests[current + 1]
end

function done(summary, latency)
    local failed = 0
    for _, count in pairs(summary.errors) do
        failed = failed + count
    end
    io.write(string.format(
        '{"requests": %d, "duration_us": %d, "failed": %d, "p50_us": %d, "p99_us": %d}\n',
        summary.requests, summary.duration, failed,
        latency:percentile(50), latency:percentile(99)
    ))
end
