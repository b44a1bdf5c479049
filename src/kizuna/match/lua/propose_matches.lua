-- Mark the tickets of each match as being matched: all of them, or none. Its backfill is written in the same step.
--
-- USES guard                whether others are picking tickets
-- USES locked_rows          what is returned then
-- USES lists                some commands take many members
-- USES pending              whether somebody else has a ticket
-- KEYS tickets              those that wait
-- ARGV root                 what all keys begin with
-- ARGV token                by which the lock is ours, or nothing
-- ARGV pending_s            how long a ticket is left to whoever took it
-- ARGV are_ours             "1" if the tickets are with us already
-- ARGV backfill_ms          how long a backfill is stored
-- ROW ARGV ids              the tickets of a match
-- ROW ARGV backfill         its backfill, or nothing
-- ROW ARGV generation       the generation that must have; 0 for a new one
-- ROW ARGV next_generation  the generation that gets
-- ROW ARGV stored           what is stored of it
--
-- Returns for each match "proposed", "taken" if a ticket is gone or somebody else has it, "changed" if its backfill is of
-- another generation or gone, or "locked"

if locked then
  return locked_rows()
end

local function can_be_taken(ids)
  for _, id in ipairs(ids) do
    local is_with_others = are_ours ~= "1" and is_pending(redis.call("ZSCORE", proposed_tickets, id))
    if is_with_others or redis.call("SISMEMBER", tickets, id) == 0 then
      return false
    end
  end
  return true
end

local function is_current(backfill, generation)
  if backfill == "" or generation == "0" then
    return true
  end
  return redis.call("HGET", all_backfills, backfill) == generation
end

local function propose(wanted, backfill, generation, next_generation, stored)
  local ids = split(wanted)
  if not is_current(backfill, generation) then
    return "changed"
  end
  if not can_be_taken(ids) then
    return "taken"
  end
  for _, id in ipairs(ids) do
    redis.call("ZADD", proposed_tickets, now, id)
  end
  if backfill ~= "" then
    redis.call("SET", body_of .. backfill, stored, "PX", backfill_ms)
    redis.call("HSET", all_backfills, backfill, next_generation)
    if generation == "0" then
      redis.call("ZADD", backfill_acks, time[1] .. string.format("%06d000", time[2]), backfill)
    end
  end
  return "proposed"
end

local results = {}
for i = 1, rows do
  results[i] = propose(row(i))
end
return results
