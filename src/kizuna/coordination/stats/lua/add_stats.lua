-- Add to counters and histograms of this day and this hour, by the server's own time.
--
-- KEYS daily     figures of the day that the caller takes today for
-- KEYS hourly    figures of the last hours; each field begins with its hour, and `hour` is the newest of them
-- KEYS flushes   what was added in the last while and must not be added again, by the time in ms
-- ARGV from_s    the day and the hour are those the caller takes them for from this second on
-- ARGV until_s   and until this one
-- ARGV hour      the hour
-- ARGV keep_s    how long figures are kept after the last one was added
-- ARGV flush     id of this call, of which a repetition must not count; empty: it is not remembered
-- ARGV known_ms  how long such an id is remembered
-- ROW ARGV kind  add, min or max
-- ROW ARGV field the counter, or the part of a histogram
-- ROW ARGV value what to add to it, or to compare it with
--
-- Returns for each row "added", "new hour" (added; hours that are too old can be removed), "known" (by its flush), or
-- {"elsewhen", the server's time in seconds}; an error where what is there is no number

local time = redis.call("TIME")
local now_s, now_ms = tonumber(time[1]), time[1] * 1000 + math.floor(time[2] / 1000)
local results = {}

local function all_rows(result)
  for i = 1, rows do
    results[i] = result
  end
  return results
end

local function is_whole(text)
  return string.match(text, "^-?%d+$") and #text < 19
end

local function is_number(text)
  return string.match(text, "^-?%d+%.?%d*$") or string.match(text, "^-?%d+%.?%d*[eE][-+]?%d+$")
end

local function beats(kind, value, present)
  value, present = tonumber(value), tonumber(present)
  return (kind == "min" and value < present) or (kind == "max" and value > present)
end

local function put(key, kind, field, value, present)
  if kind ~= "add" then
    if not present or beats(kind, value, present) then
      redis.call("HSET", key, field, value)
    end
  elseif is_whole(value) and is_whole(present or "0") then
    redis.call("HINCRBY", key, field, value)
  else
    redis.call("HINCRBYFLOAT", key, field, value)
  end
end

if now_s < tonumber(from_s) or now_s >= tonumber(until_s) then
  return all_rows({"elsewhen", now_s})
end
-- Looked at also when it is not asked for, so that a key of another type is met before anything is written.
local known = redis.call("ZSCORE", flushes, flush)
if flush ~= "" and known then
  return all_rows("known")
end
local new_hour = redis.call("HGET", hourly, "hour") ~= hour
redis.call("HLEN", daily)

for i = 1, rows do
  local kind, field, value = row(i)
  local field_of_hour = hour .. " " .. field
  local of_day, of_hour = redis.call("HGET", daily, field), redis.call("HGET", hourly, field_of_hour)
  if (of_day and not is_number(of_day)) or (of_hour and not is_number(of_hour)) then
    results[i] = redis.error_reply("ERR " .. field .. " of " .. daily .. " or " .. hourly .. " is no number")
  else
    put(daily, kind, field, value, of_day)
    put(hourly, kind, field_of_hour, value, of_hour)
    results[i] = new_hour and "new hour" or "added"
  end
end
if flush ~= "" then
  redis.call("ZADD", flushes, now_ms, flush)
  redis.call("ZREMRANGEBYSCORE", flushes, "-inf", now_ms - known_ms)
  redis.call("PEXPIRE", flushes, known_ms)
end
redis.call("HSET", hourly, "hour", hour)
redis.call("EXPIRE", daily, keep_s)
redis.call("EXPIRE", hourly, keep_s)
return results
