-- Let others match what a backend has taken that is dead, or has lost the answer: a thousand at a time.
--
-- USES guard  whether others are picking tickets
-- KEYS held   when it took them, and which
-- ARGV root   what all keys begin with
-- ARGV token  by which the lock is ours, or nothing
--
-- Returns {"given back", how many, how many are left} or {"locked"}

if locked then
  return {"locked"}
end
local since = redis.call("LINDEX", held, 0)
if not since then
  return {"given back", 0, 0}
end
local ids = redis.call("LRANGE", held, 1, 1000)
local given_back = 0
for _, id in ipairs(ids) do
  -- What somebody else has taken since is theirs.
  if redis.call("ZSCORE", proposed_tickets, id) == since then
    given_back = given_back + redis.call("ZREM", proposed_tickets, id)
  end
end
local left = redis.call("LLEN", held) - 1 - #ids
if left > 0 then
  redis.call("LTRIM", held, #ids, -1)
  redis.call("LSET", held, 0, since)
else
  redis.call("DEL", held)
end
return {"given back", given_back, left}
