-- Assign tickets, each by itself, whether they are being matched or not.
--
-- USES guard           whether others are picking tickets
-- USES locked_rows     what is returned then
-- USES own_bodies      which keys are tickets
-- USES assigning       how a ticket gets an assignment
-- KEYS tickets         those that wait
-- ARGV root            what all keys begin with
-- ARGV token           by which the lock is ours, or nothing
-- ARGV assigned_s      how long an assignment can be read, and its ticket
-- ARGV elsewhere       "1" if another server has assignments: then they are put into the outbox
-- ROW ARGV id          a ticket
-- ROW ARGV assignment  what it gets
--
-- Returns for each "assigned", "same" if it was assigned so before, "other" if it was assigned otherwise, "missing" or
-- "locked"

if locked then
  return locked_rows()
end
redis.call("ZCARD", proposed_tickets)

local function assign(id, assignment)
  local has = given(id)
  if has then
    return has == assignment and "same" or "other"
  end
  local is_there = is_ticket(id)
  if is_there then
    give(id, assignment)
  end
  redis.call("SREM", tickets, id)
  redis.call("ZREM", proposed_tickets, id)
  return is_there and "assigned" or "missing"
end

local results = {}
for i = 1, rows do
  results[i] = assign(row(i))
end
return results
