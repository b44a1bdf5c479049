-- Read keys for a backup: of each, its type, when it ends and its value are of one moment.
--
-- ARGV most_bytes  the memory up to which a value is read here; also of all that one call reads together
-- ROW KEYS key     the key to read
--
-- Returns for each one of
--   {"whole", type, ms until it ends or -1, server time in ms, items, last id and groups of a stream}
--   {"large", type, ms until it ends or -1, server time in ms, bytes}   to be read in parts
--   {"later"}            this call has read enough: ask again
--   {"gone"}             there is no such key
--   {"strange", type}    of a type that only some servers have

local readers = {
  string = function(key) return {redis.call("GET", key)} end,
  list = function(key) return redis.call("LRANGE", key, 0, -1) end,
  set = function(key) return redis.call("SMEMBERS", key) end,
  hash = function(key) return redis.call("HGETALL", key) end,
  zset = function(key) return redis.call("ZRANGE", key, 0, -1, "WITHSCORES") end,
  stream = function(key) return redis.call("XRANGE", key, "-", "+") end,
}

local clock = redis.call("TIME")
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function value_of(name, list)
  for at = 1, #list, 2 do
    if list[at] == name then
      return list[at + 1]
    end
  end
end

-- The last id, then each group and the id up to which it was given entries.
local function marks_of(kind, key)
  if kind ~= "stream" then
    return {}
  end
  local marks = {value_of("last-generated-id", redis.call("XINFO", "STREAM", key))}
  for _, group in ipairs(redis.call("XINFO", "GROUPS", key)) do
    marks[#marks + 1] = value_of("name", group)
    marks[#marks + 1] = value_of("last-delivered-id", group)
  end
  return marks
end

local found, total = {}, 0
for i = 1, rows do
  local key = row(i)
  local kind = redis.call("TYPE", key).ok
  local bytes = redis.call("MEMORY", "USAGE", key) or 0
  local large = bytes > tonumber(most_bytes)
  if kind == "none" then
    found[i] = {"gone"}
  elseif not readers[kind] then
    found[i] = {"strange", kind}
  elseif large then
    found[i] = {"large", kind, redis.call("PTTL", key), now, bytes}
  elseif total > 0 and total + bytes > tonumber(most_bytes) then
    found[i] = {"later"}
  else
    total = total + bytes
    found[i] = {"whole", kind, redis.call("PTTL", key), now, readers[kind](key), marks_of(kind, key)}
  end
end
return found
