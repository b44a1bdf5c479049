-- Find out where a reader is; one that is new begins where it wants to.
--
-- KEYS log      the stream of messages
-- KEYS cursor   the entry that the reader has done last, and its number; ? where others have added it without one
-- ARGV start    now, beginning, or the entry after which a new reader begins
-- ARGV keep_ms  how long the cursor is kept after its last use
--
-- Returns the cursor

local function number_in(entry)
  for i = 1, #entry[2], 2 do
    if entry[2][i] == "number" then
      return tonumber(entry[2][i + 1])
    end
  end
end

local function last_cursor()
  local last = redis.call("XREVRANGE", log, "+", "-", "COUNT", 1)[1]
  return last and last[1] .. " " .. (number_in(last) or "?") or "0-0 0"
end

-- The number that comes before that of the first entry in this range.
local function number_before(first)
  local number = number_in(first)
  return number and number - 1 or "?"
end

local function first_cursor()
  if start == "now" then
    return last_cursor()
  end
  local after = start == "beginning" and "0-0" or start
  local first = redis.call("XRANGE", log, "(" .. after, "+", "COUNT", 1)[1]
  return first and after .. " " .. number_before(first) or last_cursor()
end

local present = redis.call("GET", cursor) or first_cursor()
redis.call("SET", cursor, present, "PX", keep_ms)
return present
