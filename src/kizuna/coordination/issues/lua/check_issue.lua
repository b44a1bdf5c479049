-- Compare an issue with the two lists, and put it where it belongs if told so. The status is the truth.
--
-- KEYS status      the status of the issue
-- KEYS metadata    what is known about it
-- KEYS processing  all issues whose status is processing
-- KEYS today       those that were completed today
-- ARGV issue       its name
-- ARGV repair      1 to mend what is wrong
-- ARGV midnights   a JSON list: when days begin, in ms
--
-- Returns a list of what is wrong: "missing in processing", "not processing", "missing in today", "not completed today"

local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local morning, midnight = 0, nil
for _, at in ipairs(cjson.decode(midnights)) do
  if at <= now then
    morning = at
  end
  midnight = midnight or (at > now and at) or nil
end

local is = redis.call("GET", status)
local ended_at = tonumber(redis.call("HGET", metadata, "endedAt") or false)
local in_processing = redis.call("SISMEMBER", processing, issue) == 1
local in_today = redis.call("SISMEMBER", today, issue) == 1
-- Of one that somebody has set to completed by hand, nobody knows when that was.
local of_today = is == "completed" and (ended_at and ended_at >= morning or false)
local wrong = {}
if is == "processing" and not in_processing then
  wrong[#wrong + 1] = "missing in processing"
end
if is ~= "processing" and in_processing then
  wrong[#wrong + 1] = "not processing"
end
if of_today and not in_today then
  wrong[#wrong + 1] = "missing in today"
end
if in_today and (is ~= "completed" or (ended_at and not of_today)) then
  wrong[#wrong + 1] = "not completed today"
end
if #wrong == 0 or repair ~= "1" then
  return wrong
end

redis.call(is == "processing" and "SADD" or "SREM", processing, issue)
redis.call((of_today or (is == "completed" and not ended_at and in_today)) and "SADD" or "SREM", today, issue)
if midnight then
  redis.call("PEXPIREAT", today, midnight)
end
return wrong
