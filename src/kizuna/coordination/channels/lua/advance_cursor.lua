-- Note that a reader has done everything up to an entry. It never goes back.
--
-- KEYS cursor   the entry that the reader has done last, and its number
-- ARGV entry    the entry
-- ARGV number   its number
-- ARGV keep_ms  how long the cursor is kept after its last use
--
-- Returns "advanced", or "behind" if the cursor is there or further already

-- Entries are compared as text, since their halves may be longer than what numbers hold: longer is greater.
local function is_beyond(one, other)
  if #one ~= #other then
    return #one > #other
  end
  return one > other
end

local present = redis.call("GET", cursor)
if present then
  local ms, sequence = string.match(present, "^(%d+)-(%d+)")
  local new_ms, new_sequence = string.match(entry, "^(%d+)-(%d+)$")
  if is_beyond(ms, new_ms) or (ms == new_ms and not is_beyond(new_sequence, sequence)) then
    redis.call("PEXPIRE", cursor, keep_ms)
    return "behind"
  end
end
redis.call("SET", cursor, entry .. " " .. number, "PX", keep_ms)
return "advanced"
