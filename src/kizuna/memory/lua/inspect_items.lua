-- What is wrong with items, each looked at in one moment: with itself, and where it should stand.
--
-- USES time     what time it is
-- USES places   where items stand
-- USES faults   what is wrong with one of them
-- KEYS expiry   when items end; also says where to look on a cluster
-- ARGV root     what all keys begin with
-- ROW ARGV id   an item
--
-- Returns for each row {kind of fault, key, what is there, what should be, …}: empty if all is well, or it has ended

local NAMES = {"id", "type", "contextId", "priority", "createdAt", "expiresAt", "version"}
local NUMBERS = {createdAt = true, expiresAt = true}

local function more_of(packed)
  local readable, more = pcall(cjson.decode, packed)
  return readable and type(more) == "table" and more or {}
end

local function check_generation(generation, number)
  check_score(items_of_generation .. generation, number)
  if is_outdated(generation, number) and redis.call("SISMEMBER", generations_raised, generation) == 0 then
    fault("outdated", items_of_generation .. generation, number, redis.call("HGET", generations, generation))
  end
end

local function check(id)
  look_at(id)
  local key = item_of .. id
  local is = redis.pcall("HMGET", key, "id", "type", "contextId", "priority", "createdAt", "expiresAt", "version",
    "more", "generationNumber")
  if is_refused(is) or redis.call("EXISTS", key) == 0 or not is_complete(key, is, NAMES, NUMBERS) then
    return faults
  end
  local type_, context, priority, created, expires = is[2], is[3], is[4], is[5], is[6]
  local more = is[8] and more_of(is[8]) or {}
  check_end(key, tonumber(expires))
  check_place(item_places, {type_, context, priority, more.dependsOn or false, more.generation or false})
  check_in_set(items_of_type .. type_)
  check_in_set(items_of_context .. context)
  check_score(items_of_priority .. priority, created)
  check_score(expiry, expires)
  check_score(type_order_of .. type_, created)
  check_score(context_order_of .. context, created)
  for _, name in ipairs(type(more.dependsOn) == "table" and more.dependsOn or {}) do
    check_in_set(dependents_of .. name)
  end
  if more.generation then
    check_generation(more.generation, is[9] or "0")
  end
  return faults
end

local found = {}
for i = 1, rows do
  found[i] = check(row(i))
end
return found
