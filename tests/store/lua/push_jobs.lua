-- Put jobs on a queue, each with its payload under a key of its own.
--
-- KEYS queue        names of the waiting jobs, oldest first
-- ARGV lease_ms     how long a payload is kept
-- ROW KEYS job      payload of the job; expires
-- ROW ARGV name     what goes on the queue
-- ROW ARGV payload  what the job is about
--
-- Returns for each row the length of the queue with it, or false if the job is there already

local lengths = {}
for i = 1, rows do
  local job, name, payload = row(i)
  lengths[i] = redis.call("SET", job, payload, "NX", "PX", lease_ms) and redis.call("RPUSH", queue, name)
end
return lengths
