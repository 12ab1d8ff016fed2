-- The requests of wrk: fenced writes of 5 bytes. The arguments are the number of resources that they
-- are spread over, and the number of writes to skip. Prints a JSON line at the end. wrk itself counts
-- the responses that are errors.

-- A prime that doesn't divide the number of resources, so that all of them are visited.
local STRIDE = 7919

function init(arguments)
    local resources = tonumber(arguments[1])
    wrk.method = "PUT"
    wrk.body = "hello"
    wrk.headers["Fencing-Token"] = "34"
    wrk.headers["Fencing-Holder"] = "bench"
    requests = {}
    for resource = 1, resources do
        requests[resource] = wrk.format(nil, "/v1/resources/bench/" .. resource)
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
