-- Give minimatch's lock back: whatever of it is ours, and nothing that is somebody else's.
--
-- KEYS lock_0    the three keys; who has two of them has the lock
-- KEYS lock_1    ...
-- KEYS lock_2    ...
-- ARGV token     who held it
--
-- Returns how many of the keys were ours

local released = 0
for _, key in ipairs({lock_0, lock_1, lock_2}) do
  if redis.call("GET", key) == token then
    released = released + redis.call("DEL", key)
  end
end
return released
