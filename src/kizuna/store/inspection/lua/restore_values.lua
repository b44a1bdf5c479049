-- Put values back from a backup: each is built aside, part by part, and moved to its place when it is whole.
--
-- ARGV conflict   "keep" what has the key now, or "replace" it
-- ARGV ends_are   "in" so many ms from now, or "at" a time in ms
-- ARGV aside_ms   how long a value that stays unfinished is kept aside
-- ROW KEYS key    where the value belongs
-- ROW KEYS aside  where it is built
-- ROW ARGV kind   its type
-- ROW ARGV part   0 for the first part
-- ROW ARGV last   1 for the last part, else 0
-- ROW ARGV items  what the part holds, in MessagePack
-- ROW ARGV marks  of a stream, with its last part: the last id, then each group and its id, in MessagePack
-- ROW ARGV ends   when it ends, or -1
--
-- Returns for each "restored", "begun" (more parts must follow), "exists", "expired" or an error

local AT_ONCE = 1000
local clock = redis.call("TIME")
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function add_all(command, aside, items)
  for first = 1, #items, AT_ONCE do
    local reply = redis.pcall(command, aside, unpack(items, first, math.min(first + AT_ONCE - 1, #items)))
    if type(reply) == "table" and reply.err then
      return reply
    end
  end
end

local function add_entries(aside, entries)
  for _, entry in ipairs(entries) do
    local reply = redis.pcall("XADD", aside, unpack(entry))
    if type(reply) == "table" and reply.err then
      return reply
    end
  end
end

local add = {
  string = function(aside, items) return add_all("APPEND", aside, items) end,
  list = function(aside, items) return add_all("RPUSH", aside, items) end,
  set = function(aside, items) return add_all("SADD", aside, items) end,
  hash = function(aside, items) return add_all("HSET", aside, items) end,
  zset = function(aside, items) return add_all("ZADD", aside, items) end,
  stream = function(aside, items)
    -- A stream may be empty: a group that comes and goes leaves it behind.
    local reply = redis.pcall("XGROUP", "CREATE", aside, "kizuna", "0", "MKSTREAM")
    if type(reply) == "table" and reply.err then
      return reply
    end
    redis.call("XGROUP", "DESTROY", aside, "kizuna")
    return add_entries(aside, items)
  end,
}

local function set_marks(aside, marks)
  if #marks > 0 then
    redis.call("XSETID", aside, marks[1])
  end
  for at = 2, #marks, 2 do
    redis.call("XGROUP", "CREATE", aside, marks[at], marks[at + 1])
  end
end

local function move(aside, key, ends)
  if ends == -1 then
    redis.call("PERSIST", aside)
  elseif ends_are == "at" then
    redis.call("PEXPIREAT", aside, ends)
  else
    redis.call("PEXPIRE", aside, ends)
  end
  redis.call("RENAME", aside, key)
  return "restored"
end

local function restore(key, aside, kind, part, last, items, marks, ends)
  if conflict == "keep" and redis.call("EXISTS", key) == 1 then
    redis.call("UNLINK", aside)
    return "exists"
  end
  if ends_are == "at" and ends ~= -1 and ends <= now then
    redis.call("UNLINK", aside)
    return "expired"
  end
  if part == 0 then
    redis.call("UNLINK", aside)
  elseif redis.call("EXISTS", aside) == 0 then
    return redis.error_reply("ERR the parts of " .. key .. " that were restored before are gone")
  end
  local failure = add[kind](aside, cmsgpack.unpack(items))
  if failure then
    redis.call("UNLINK", aside)
    return failure
  end
  if last == 1 then
    set_marks(aside, cmsgpack.unpack(marks))
    return move(aside, key, ends)
  end
  redis.call("PEXPIRE", aside, aside_ms)
  return "begun"
end

local results = {}
for i = 1, rows do
  local key, aside, kind, part, last, items, marks, ends = row(i)
  results[i] = restore(key, aside, kind, tonumber(part), tonumber(last), items, marks, tonumber(ends))
end
return results
