-- Let tickets wait.
--
-- KEYS tickets      those that wait
-- ROW KEYS body     the ticket
-- ROW ARGV id       its id
-- ROW ARGV message  what it says
-- ROW ARGV ttl_ms   how long it waits
--
-- Returns for each row "created", or "there" if it was created before: then whoever repeats it has its answer

local results = {}
for i = 1, rows do
  local body, id, message, ttl_ms = row(i)
  if redis.call("EXISTS", body) == 1 then
    results[i] = "there"
  else
    redis.call("SADD", tickets, id)
    redis.call("SET", body, message, "PX", ttl_ms)
    results[i] = "created"
  end
end
return results
