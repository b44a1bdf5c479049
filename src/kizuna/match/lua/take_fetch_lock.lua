-- Take minimatch's lock if it is free: two of its three keys, and the third if nobody has it.
--
-- KEYS lock_0    the three keys; who has two of them has the lock
-- KEYS lock_1    ...
-- KEYS lock_2    ...
-- KEYS plain     the lock of those who know it as one key
-- ARGV token     who wants it
-- ARGV lock_ms   how long it outlives a holder that does not extend it
--
-- Returns "taken", also if it was ours already, or "held"

if redis.call("EXISTS", plain) == 1 then
  return "held"
end

local keys, ours, free = {lock_0, lock_1, lock_2}, 0, {}
for _, key in ipairs(keys) do
  local holder = redis.call("GET", key)
  if holder == token then
    ours = ours + 1
  elseif not holder then
    free[#free + 1] = key
  end
end
if ours + #free < 2 then
  return "held"
end

for _, key in ipairs(free) do
  redis.call("SET", key, token, "PX", lock_ms)
end
return "taken"
