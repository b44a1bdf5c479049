-- Put messages into the log of a channel, and tell those who listen now.
--
-- KEYS log       the stream of messages: id (the publisher's), number (counted from 1) and message
-- KEYS ids       ids that were used lately, by the time in ms of their entry
-- ARGV channel   where they are published
-- ARGV keep      how many stay in the log, give or take a hundred
-- ARGV known_ms  how long an id is known
-- ARGV most_ids  how many of them are
-- ROW ARGV id       makes a repetition harmless
-- ROW ARGV message  the message
--
-- Returns for each row {"published", entry, how many heard it} or {"known", entry, empty if it has left the log}

local function read(entry)
  local named = {}
  for i = 1, #entry[2], 2 do
    named[entry[2][i]] = entry[2][i + 1]
  end
  return named
end

-- Others may have added entries without a number: then we count from the last one that has it.
local function last_number(most)
  for place, entry in ipairs(redis.call("XREVRANGE", log, "+", "-", "COUNT", most)) do
    local found = tonumber(read(entry).number)
    if found then
      return found + place - 1
    end
  end
end

-- Looked at first, so that a key of another type is met before anything is written.
redis.call("ZCARD", ids)
local is_new = redis.call("EXISTS", log) == 0
local number = last_number(1) or last_number(100) or redis.call("XLEN", log)
local results, newest_ms = {}, 0

local function entry_known(at_ms, id)
  for _, entry in ipairs(redis.call("XRANGE", log, at_ms, at_ms)) do
    if read(entry).id == id then
      return entry[1]
    end
  end
  return ""
end

local function publish(id, message)
  local entry = redis.call("XADD", log, "*", "id", id, "number", number + 1, "message", message)
  local heard = redis.pcall("PUBLISH", channel, message)
  if type(heard) == "table" then
    -- We may not publish there: then it is not in the log either.
    redis.call("XDEL", log, entry)
    if is_new then
      redis.call("DEL", log)
    end
    return heard
  end
  number, is_new, newest_ms = number + 1, false, string.match(entry, "^%d+")
  redis.call("ZADD", ids, newest_ms, id)
  return {"published", entry, heard}
end

for i = 1, rows do
  local id, message = row(i)
  local at_ms = redis.call("ZSCORE", ids, id)
  results[i] = at_ms and {"known", entry_known(at_ms, id)} or publish(id, message)
end
if newest_ms ~= 0 then
  redis.call("XTRIM", log, "MAXLEN", "~", keep)
  redis.call("ZREMRANGEBYSCORE", ids, "-inf", string.format("%.0f", newest_ms - known_ms))
  redis.call("ZREMRANGEBYRANK", ids, 0, -1 - most_ids)
  redis.call("PEXPIRE", ids, known_ms)
end
return results
