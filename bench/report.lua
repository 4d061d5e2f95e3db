-- Requests and report for wrk. Arguments after `--`: how many routes to spread requests over (0: the
-- URL's own path). Prints one line that starts with RESULT, for bench.py.

local paths, at = {}, 0

function init(args)
   local routes = tonumber(args[1]) or 0
   if routes == 0 then
      return
   end
   -- A fixed thousand of all routes, in an order no cache can guess.
   math.randomseed(7)
   for i = 1, 1000 do
      paths[i] = wrk.format(nil, "/r/" .. math.random(0, routes - 1))
   end
   request = function()
      at = at % 1000 + 1
      return paths[at]
   end
end

function done(summary, latency, requests)
   local e = summary.errors
   io.write(string.format(
      "RESULT %d %d %d %d %d %d %d %d\n",
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
      e.connect + e.read + e.write, e.status, e.timeout))
end
