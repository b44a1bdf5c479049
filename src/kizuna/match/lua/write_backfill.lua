-- Create a backfill, or change it; its tickets go back to the others.
--
-- USES guard          whether others are picking tickets
-- USES lists          some commands take many members
-- USES acknowledging  when it was last acknowledged
-- KEYS body           where it is stored
-- ARGV root           what all keys begin with
-- ARGV token          by which the lock is ours, or nothing
-- ARGV id             its id
-- ARGV stored         what is stored
-- ARGV generation     the generation it gets
-- ARGV expected       the generation it must have; 0 for a new one
-- ARGV released       tickets that waited for it
-- ARGV expires_ms     how long it lives without an acknowledgement
-- ARGV backfill_ms    how long it is stored
--
-- Returns {"written"}, {"exists"}, {"missing"}, {"changed", its generation}, {"expired"} or {"locked"}

if locked then
  return {"locked"}
end
local has = redis.call("HGET", all_backfills, id)
if expected == "0" then
  if has or redis.call("EXISTS", body) == 1 then
    return {"exists"}
  end
else
  if not has or redis.call("EXISTS", body) == 0 then
    return {"missing"}
  end
  if has ~= expected then
    return {"changed", has}
  end
  if has_expired(id) then
    return {"expired"}
  end
end
remove("ZREM", proposed_tickets, split(released))
redis.call("HSET", all_backfills, id, generation)
redis.call("SET", body, stored, "PX", backfill_ms)
if expected == "0" then
  redis.call("ZADD", backfill_acks, now_ns, id)
end
return {"written"}
