-- Drives wrk: fenced writes of 5 bytes, spread over RESOURCES resources. Prints a JSON line in the end.

local threads = {}

function setup(thread)
    table.insert(threads, thread)
    thread:set("first", #threads * 4999)
end

function init(arguments)
    resources = tonumber(arguments[1])
    next_resource = first
    refused = 0
    wrk.method = "PUT"
    wrk.body = "hello"
    wrk.headers["Fencing-Token"] = "34"
    wrk.headers["Fencing-Holder"] = "bench"
end

-- A stride that has no factor in common with the number of resources visits all of them.
function request()
    next_resource = (next_resource + 7919) % resources
    return wrk.format(nil, "/v1/resources/bench/" .. next_resource)
end

function response(status)
    if status ~= 200 and status ~= 201 then
        refused = refused + 1
    end
end

function done(summary, latency, requests)
    local failed = 0
    for _, thread in ipairs(threads) do
        failed = failed + thread:get("refused")
    end
    for _, count in pairs(summary.errors) do
        failed = failed + count
    end
    io.write(string.format(
        '{"requests": %d, "duration_us": %d, "failed": %d, "p50_us": %d, "p99_us": %d}\n',
        summary.requests, summary.duration, failed,
        latency:percentile(50), latency:percentile(99)
    ))
end
