-- What is wrong with contexts, each looked at in one moment: with itself, and where it should stand.
--
-- USES time     what time it is
-- USES faults   what is wrong with one of them
-- KEYS expiry   when contexts end; also says where to look on a cluster
-- ARGV root     what all keys begin with
-- ROW ARGV id   a context
--
-- Returns for each row {kind of fault, key, what is there, what should be, …}: empty if all is well, or it has ended

local NAMES = {"id", "type", "createdAt", "expiresAt", "version"}
local NUMBERS = {createdAt = true, expiresAt = true}

local function check(id)
  look_at(id)
  local key = context_of .. id
  local is = redis.pcall("HMGET", key, "id", "type", "createdAt", "expiresAt", "version", "name", "atEnd")
  if is_refused(is) or redis.call("EXISTS", key) == 0 or not is_complete(key, is, NAMES, NUMBERS) then
    return faults
  end
  check_end(key, tonumber(is[4]))
  check_place(context_places, {is[2], is[6] or "", is[7] or "delete"})
  check_in_set(contexts_of_type .. is[2])
  check_score(expiry, is[4])
  return faults
end

local found = {}
for i = 1, rows do
  found[i] = check(row(i))
end
return found
