-- End a ticket, whatever has become of it.
--
-- USES guard       whether others are picking tickets
-- USES own_bodies  which keys are tickets
-- KEYS tickets     those that wait
-- ARGV root        what all keys begin with
-- ARGV token       by which the lock is ours, or nothing
-- ARGV id          the ticket
--
-- Returns {"deleted", whether it was there} or {"locked"}

if locked then
  return {"locked"}
end
redis.call("ZCARD", proposed_tickets)
redis.call("SREM", tickets, id)
redis.call("ZREM", proposed_tickets, id)
redis.call("HDEL", outbox, id)
local was_there = 0
if is_ticket(id) then
  was_there = redis.call("DEL", body_of .. id)
end
redis.call("DEL", assignment_of .. id)
redis.call("PUBLISH", ended, id)
return {"deleted", was_there}
