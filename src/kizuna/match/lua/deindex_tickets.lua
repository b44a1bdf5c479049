-- Have tickets matched no more; what they say stays readable.
--
-- USES guard       whether others are picking tickets
-- USES lists       some commands take many members
-- KEYS tickets     those that wait
-- ARGV root        what all keys begin with
-- ARGV token       by which the lock is ours, or nothing
-- ARGV ids         the tickets
-- ARGV only_ended  "1": only those whose time is up
--
-- Returns {"removed", how many} or {"locked"}

if locked then
  return {"locked"}
end
redis.call("ZCARD", proposed_tickets)
local gone = {}
for _, id in ipairs(split(ids)) do
  if only_ended ~= "1" or redis.call("EXISTS", body_of .. id) == 0 then
    gone[#gone + 1] = id
  end
end
remove("ZREM", proposed_tickets, gone)
return {"removed", remove("SREM", tickets, gone)}
