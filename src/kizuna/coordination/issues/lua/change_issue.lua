-- Change the status of an issue, and with it both lists and the metadata. Every change is made here.
--
-- KEYS status       the status of the issue, in one word
-- KEYS metadata     what is known about it
-- KEYS processing   all issues whose status is processing
-- KEYS today        those that were completed today
-- KEYS lock         the lock of this name: held by another process, it refuses a checkout
-- ARGV issue        its name
-- ARGV target       the new status; empty: the one it had before it was checked out; "-": forget the issue
-- ARGV process      who wants it
-- ARGV change       makes the change known by: repeated, it is harmless
-- ARGV rule         "checkout"; "ours" if it must be checked out by us; "free" if not by anybody else; "force"
-- ARGV expected     a JSON list: what the status must be, "" for none; empty: anything
-- ARGV fields       a JSON object of texts, to be added to the metadata
-- ARGV ends         1 if the issue has ended with this
-- ARGV kept_s       how long it is kept then
-- ARGV midnights    a JSON list: when days begin, in ms, the one before yesterday's to the one after tomorrow's
-- ARGV channel      where changes are told
--
-- Returns {"done", status, status before, by}; {"taken", status, by}; {"locked", holder};
-- or {"another day", now} if the midnights are those of another week

local was = redis.call("GET", status) or ""
local by, last_change, before = unpack(redis.call("HMGET", metadata, "processId", "lastChange", "statusBefore"))
by, before = by or "", before or ""
if last_change == change then
  return {"done", was, before, by}
end

local in_progress = was == "processing"
local refused = (rule == "checkout" and in_progress)
  or (rule == "ours" and not (in_progress and by == process))
  or (rule == "free" and in_progress and by ~= process)
local allowed = cjson.decode(expected)
local fits = #allowed == 0
for _, word in ipairs(allowed) do
  fits = fits or word == was
end
if refused or not fits then
  return {"taken", was, in_progress and by or ""}
end
local held = redis.call("GET", lock)
local holder = held and (string.match(held, "^%d+:(.+)$") or held)
if rule == "checkout" and holder and holder ~= process and holder:sub(1, #process + 1) ~= process .. "/" then
  return {"locked", holder}
end
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local days, midnight = cjson.decode(midnights), nil
for i = #days, 1, -1 do
  midnight = days[i] > now and days[i] or midnight
end
if not midnight or days[1] > now then
  return {"another day", now}
end

if target == "-" then
  redis.call("DEL", status, metadata)
  redis.call("SREM", processing, issue)
  redis.call("SREM", today, issue)
  redis.call("PUBLISH", channel, cjson.encode({issue = issue, status = "", by = process}))
  return {"done", "", was, ""}
end
if target == "" then
  target = before ~= "" and before or "pending"
end
-- A full server refuses the first write of a script or none: it can be told of work that ends, and gets no new one.
if in_progress then
  redis.call("SREM", processing, issue)
end
redis.call("SET", status, target)
redis.call("SREM", today, issue)
redis.call("HDEL", metadata, "endedAt", "reason", "statusBefore")
if target == "processing" then
  redis.call("SADD", processing, issue)
  redis.call("HSET", metadata, "processId", process, "checkedOutAt", now, "statusBefore", was)
elseif ends == "1" then
  redis.call("HSET", metadata, "processId", process, "endedAt", now)
else
  redis.call("HDEL", metadata, "processId", "checkedOutAt")
end
if target == "completed" then
  redis.call("SADD", today, issue)
  redis.call("PEXPIREAT", today, midnight)
end
redis.call("HSET", metadata, "lastChange", change)
for name, value in pairs(cjson.decode(fields)) do
  redis.call("HSET", metadata, name, value)
end
if ends == "1" then
  redis.call("EXPIRE", status, kept_s)
  redis.call("EXPIRE", metadata, kept_s)
else
  redis.call("PERSIST", metadata)
end
redis.call("PUBLISH", channel, cjson.encode({issue = issue, status = target, by = process}))
return {"done", target, was, target == "processing" and process or ""}
