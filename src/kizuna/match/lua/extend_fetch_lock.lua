-- Let minimatch's lock last for another while, where it is still ours.
--
-- KEYS lock_0    the three keys; who has two of them has the lock
-- KEYS lock_1    ...
-- KEYS lock_2    ...
-- ARGV token     who holds it
-- ARGV lock_ms   how long it lasts from now
--
-- Returns "extended", or "lost" if somebody else may have it

local ours = {}
for _, key in ipairs({lock_0, lock_1, lock_2}) do
  if redis.call("GET", key) == token then
    ours[#ours + 1] = key
  end
end
if #ours < 2 then
  return "lost"
end

for _, key in ipairs(ours) do
  redis.call("PEXPIRE", key, lock_ms)
end
return "extended"
