-- Let others match these tickets.
--
-- USES guard     whether others are picking tickets
-- USES lists     some commands take many members
-- KEYS proposed  those that are being matched
-- ARGV root      what all keys begin with
-- ARGV token     by which the lock is ours, or nothing
-- ARGV ids       the tickets
-- ARGV everyone  "1": all of them, whatever the ids
--
-- Returns {"released", how many} or {"locked"}

if locked then
  return {"locked"}
end
if everyone == "1" then
  local all = redis.call("ZCARD", proposed)
  redis.call("UNLINK", proposed)
  return {"released", all}
end
return {"released", remove("ZREM", proposed, split(ids))}
