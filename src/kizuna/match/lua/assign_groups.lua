-- Assign the tickets of each group: all of them, or none.
--
-- USES guard           whether others are picking tickets
-- USES locked_rows     what is returned then
-- USES lists           some commands take many members
-- USES assigning       how a ticket gets an assignment
-- KEYS tickets         those that wait
-- ARGV root            what all keys begin with
-- ARGV token           by which the lock is ours, or nothing
-- ARGV assigned_s      how long an assignment can be read, and its ticket
-- ARGV elsewhere       "1" if another server has assignments: then they are put into the outbox
-- ARGV unchecked       "1" to assign also tickets that are gone
-- ROW ARGV ids         the tickets of a group
-- ROW ARGV assignment  what they get
--
-- Returns for each group "assigned", {"refused", those that are gone or assigned}, or "locked". The others of a refused
-- group can be matched again at once. A group that was assigned so before is assigned.

if locked then
  return locked_rows()
end
-- Here rather than after something was written, should the key hold something else.
redis.call("ZCARD", proposed_tickets)
local assigned_now, dropped, freed = {}, {}, {}

local function read_groups()
  local all, groups = {}, {}
  for number = 1, rows do
    local ids, assignment = row(number)
    groups[number] = {split(ids), assignment}
    for _, id in ipairs(groups[number][1]) do
      all[#all + 1] = id
    end
  end
  return groups, all
end

local groups, all = read_groups()
local does_wait = {}
for first = 1, #all, MOST do
  local last = math.min(first + MOST - 1, #all)
  for i, waits in ipairs(redis.call("SMISMEMBER", tickets, unpack(all, first, last))) do
    does_wait[all[first + i - 1]] = waits == 1
  end
end

-- All of them wait, and none is assigned: so it is almost always, and two questions tell, unless they are too many to be
-- handed on at once.
local function are_free(ids)
  if #ids > MOST then
    return false
  end
  local bodies, assignments = {}, {}
  for i, id in ipairs(ids) do
    if assigned_now[id] or not does_wait[id] then
      return false
    end
    bodies[i] = body_of .. id
    assignments[i] = assignment_of .. id
  end
  return elsewhere ~= "1" and redis.call("EXISTS", unpack(assignments)) == 0
    and redis.call("EXISTS", unpack(bodies)) == #ids
end

local function why_not(ids, assignment)
  if are_free(ids) then
    return {}, false
  end
  local same, gone = 0, {}
  for _, id in ipairs(ids) do
    local has = assigned_now[id] or given(id)
    if has == assignment then
      same = same + 1
    end
    if has or (unchecked ~= "1" and (not does_wait[id] or redis.call("EXISTS", body_of .. id) == 0)) then
      gone[#gone + 1] = id
      dropped[#dropped + 1] = id
    end
  end
  return gone, same == #ids
end

local function assign(ids, assignment)
  for _, id in ipairs(ids) do
    give(id, assignment)
    assigned_now[id] = assignment
    dropped[#dropped + 1] = id
  end
end

local results = {}
for number, group in ipairs(groups) do
  local ids, assignment = group[1], group[2]
  local gone, is_done = why_not(ids, assignment)
  if is_done then
    results[number] = "assigned"
  elseif #gone > 0 then
    for _, id in ipairs(ids) do
      if not assigned_now[id] then
        freed[#freed + 1] = id
      end
    end
    results[number] = {"refused", table.concat(gone, " ")}
  else
    assign(ids, assignment)
    results[number] = "assigned"
  end
end
-- Out of the index in the same step as the assignment is made: nobody can take them in between.
remove("ZREM", proposed_tickets, freed)
remove("ZREM", proposed_tickets, dropped)
remove("SREM", tickets, dropped)
return results
