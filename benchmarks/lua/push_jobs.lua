-- Put jobs where workers find them by the time at which they are due.
--
-- KEYS due          names of the jobs, by the time at which they are due
-- ARGV keep_ms      how long a payload is kept
-- ROW KEYS job      payload of the job; expires
-- ROW ARGV name     what stands in the index
-- ROW ARGV due_ms   when it should run
-- ROW ARGV payload  what the job is about
--
-- Returns for each row "pushed", or "known" if the index had it already

local outcomes = {}
for i = 1, rows do
  local job, name, due_ms, payload = row(i)
  redis.call("SET", job, payload, "PX", keep_ms)
  outcomes[i] = redis.call("ZADD", due, due_ms, name) == 1 and "pushed" or "known"
end
return outcomes
