-- End a backfill; its tickets go back to the others.
--
-- USES guard     whether others are picking tickets
-- USES lists     some commands take many members
-- KEYS body      where it is stored
-- ARGV root      what all keys begin with
-- ARGV token     by which the lock is ours, or nothing
-- ARGV id        its id
-- ARGV released  tickets that waited for it
--
-- Returns {"deleted", whether it was there} or {"locked"}

if locked then
  return {"locked"}
end
remove("ZREM", proposed_tickets, split(released))
redis.call("HDEL", all_backfills, id)
redis.call("ZREM", backfill_acks, id)
return {"deleted", redis.call("DEL", body)}
